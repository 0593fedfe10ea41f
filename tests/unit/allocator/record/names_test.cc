// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/names.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"

namespace names_test {

namespace {

using cistern::alloc::Names;

TEST_CASE("a text has one number, in the order of first use, and is found by it") {
  const auto names = std::make_unique<Names>();
  CHECK(names->number("step") == 1);
  CHECK(names->number("") == 2);
  CHECK(names->number("step") == 1);
  CHECK(names->count() == 2);
  CHECK(std::string(names->text(1)) == "step");
  CHECK(std::string(names->text(2)).empty());
  CHECK(std::string(names->text(0)).empty());
}

TEST_CASE("of a text that is too long the first bytes count") {
  const auto names = std::make_unique<Names>();
  const std::string text(Names::kLongest + 1, 'x');
  CHECK(names->number(text) == names->number(text + "y"));
  CHECK(std::string(names->text(1)).size() == Names::kLongest);
}

TEST_CASE("threads that bring the same texts get the same numbers") {
  const auto names = std::make_unique<Names>();
  constexpr uint32_t kTexts = 3000;
  std::vector<std::vector<uint32_t>> seen(4, std::vector<uint32_t>(kTexts));
  std::vector<std::thread> threads;
  threads.reserve(seen.size());
  for (auto& mine : seen) {
    threads.emplace_back([&] {
      for (uint32_t i = 0; i < kTexts; ++i) mine[i] = names->number("text " + std::to_string(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(names->count() == kTexts);
  for (const auto& mine : seen) CHECK(mine == seen[0]);
  for (uint32_t i = 0; i < kTexts; ++i) {
    CHECK(names->text(seen[0][i]) == "text " + std::to_string(i));
  }
}

}  // namespace

}  // namespace names_test
