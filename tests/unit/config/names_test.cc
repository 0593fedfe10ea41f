// SPDX-License-Identifier: Apache-2.0
#include "tests/catch.h"
#include "tests/unit/config/load_with.h"

namespace cistern::config::test::names_test {
namespace {

TEST_CASE("a misspelt CISTERN_ name gets one warning with the nearest name") {
  const std::pair<const char*, const char*> cases[] = {
      {"CISTERN_REPROT", "CISTERN_REPORT"},
      {"CISTERN_GPU_LIMITS", "CISTERN_GPU_LIMIT"},
      {"CISTERN_LOGFILE", "CISTERN_LOG_FILE"},
      {"CISTERN_POOl", "CISTERN_POOL"},
      {"CISTERN_CONF", "CISTERN_CONFIG"},
      {"CISTERN_ONERROR", "CISTERN_ON_ERROR"},
      {"CISTERN_MEMORY_OPTIMISE", "CISTERN_MEMORY_OPTIMIZE"},
      {"CISTERN_SKIP_GRAD", "CISTERN_SKIP_GRADS"},
      {"CISTERN_GRAPH_RNAGE", "CISTERN_GRAPH_RANGE"},
  };
  for (const auto& [typed, meant] : cases) {
    INFO(typed);
    const auto loaded = load_with({std::string(typed) + "=1"});
    CHECK(loaded->status == Status::kOk);
    REQUIRE(loaded->warning_count == 1);
    CHECK(contains(loaded->warnings[0].text, std::string("did you mean ") + meant + "?"));
  }
}

TEST_CASE("every name with one letter missing or two swapped is traced back") {
  for (const Row& row : kTable) {
    const std::string name = row.name;
    if (name.rfind("CISTERN_", 0) != 0 || row.store == nullptr) continue;
    for (size_t i = 9; i + 1 < name.size(); ++i) {
      std::string missing = name;
      missing.erase(i, 1);
      INFO(missing);
      // That one is as near to CISTERN_ONLY_SIZES as to CISTERN_ONLY_SITES.
      if (missing != "CISTERN_ONLY_SIES") CHECK(std::string(nearest_name(missing)) == name);
      std::string swapped = name;
      std::swap(swapped[i], swapped[i + 1]);
      INFO(swapped);
      CHECK(std::string(nearest_name(swapped)) == name);
    }
  }
}

TEST_CASE("a name far from all others gets a hint instead") {
  for (const char* typed : {"CISTERN_XYZZY", "CISTERN_", "CISTERN_Q"}) {
    INFO(typed);
    const auto loaded = load_with({std::string(typed) + "=1"});
    REQUIRE(loaded->warning_count == 1);
    CHECK(contains(loaded->warnings[0].text, "see cistern flags"));
  }
  CHECK(nearest_name("CISTERN_" + std::string(500, 'X')) == nullptr);
}

TEST_CASE("unknown FLAGS_ and GE_ names are other people's") {
  const auto loaded =
      load_with({"FLAGS_check_nan_inf=1", "GE_PROFILING=1", "FLAGS_free_idle_memroy=x",
                 "cistern_pool=off", "SIMCUDA_DEVICES=2"});
  CHECK(loaded->status == Status::kOk);
  CHECK(loaded->warning_count == 0);
}

}  // namespace
}  // namespace cistern::config::test::names_test
