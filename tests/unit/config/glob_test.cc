// SPDX-License-Identifier: Apache-2.0
#include "config/text.h"

#include <fnmatch.h>

#include <random>
#include <string>

#include "tests/catch.h"

namespace glob_test {

namespace {

using cistern::config::matches_glob;

TEST_CASE("a glob matches whole names") {
  const struct {
    const char *glob, *text;
    bool matches;
  } rows[] = {
      {"step", "step", true},     {"step", "step 1", false},
      {"step*", "step", true},    {"step*", "step 12", true},
      {"*step", "a/step", true},  {"*step*", "a/step 1", true},
      {"s?ep", "step", true},     {"s?ep", "sep", false},
      {"?", "", false},           {"*", "", true},
      {"[ab]x", "bx", true},      {"[ab]x", "cx", false},
      {"[!ab]x", "cx", true},     {"[^ab]x", "ax", false},
      {"[a-f]", "e", true},       {"[a-f]", "g", false},
      {"[]]", "]", true},         {"[]-]", "-", true},
      {"\\*", "*", true},         {"\\*", "x", false},
      {"a,b", "a,b", true},       {"*a*b*c", "xaybzc", true},
      {"*a*b*c", "xaybz", false}, {"**a", "bba", true},
  };
  for (const auto& row : rows) {
    INFO(row.glob << " and " << row.text);
    CHECK(matches_glob(row.glob, row.text) == row.matches);
  }
}

TEST_CASE("globs mean what they mean to the C library") {
  std::mt19937 random(1);
  const auto some = [&](const char* of, unsigned most) {
    const std::string letters = of;
    std::string text;
    for (size_t n = random() % most; n > 0; --n) text += letters[random() % letters.size()];
    return text;
  };
  int judged = 0;
  for (int i = 0; i < 200'000; ++i) {
    const std::string glob = some("ab*?[]!-\\", 8), text = some("ab]-!", 7);
    // An open [ is the one thing of which fnmatch and the table think differently.
    if (!cistern::config::is_glob(glob) || glob.find('[') != std::string::npos) continue;
    ++judged;
    INFO(glob << " and " << text);
    REQUIRE(matches_glob(glob, text) == (fnmatch(glob.c_str(), text.c_str(), 0) == 0));
  }
  CHECK(judged > 50'000);
}

}  // namespace

}  // namespace glob_test
