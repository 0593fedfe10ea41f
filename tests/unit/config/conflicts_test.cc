// SPDX-License-Identifier: Apache-2.0
#include "tests/catch.h"
#include "tests/unit/config/load_with.h"

namespace cistern::config::test::conflicts_test {
namespace {

const std::vector<std::vector<std::string>> kConflicts = {
    {"GE_USE_STATIC_MEMORY=2", "CISTERN_STATIC_MEMORY_POLICY=3"},
    {"GE_USE_STATIC_MEMORY=0", "CISTERN_STATIC_MEMORY_POLICY=2"},
    {"GE_USE_STATIC_MEMORY=1", "FLAGS_allocator_strategy=legacy"},
    {"GE_USE_STATIC_MEMORY=2", "FLAGS_allocator_strategy=auto_growth"},
    {"CISTERN_STATIC_MEMORY_POLICY=4", "FLAGS_allocator_strategy=thread_local"},
    {"GE_USE_STATIC_MEMORY=3", "CISTERN_MEMORY_OPTIMIZE=0"},
    {"CISTERN_STATIC_MEMORY_POLICY=2", "CISTERN_MEMORY_OPTIMIZE=1"},
    {"FLAGS_gpu_memory_limit_mb=100", "CISTERN_GPU_LIMIT=60%"},
    {"FLAGS_gpu_memory_limit_mb=0", "CISTERN_GPU_LIMIT=60%"},
    {"FLAGS_gpu_memory_limit_mb=100", "CISTERN_GPU_LIMIT_3=1G"},
    {"FLAGS_gpu_memory_limit_mb=1023", "FLAGS_initial_gpu_memory_in_mb=1024"},
    {"CISTERN_GPU_LIMIT=1023M", "FLAGS_initial_gpu_memory_in_mb=1024"},
    {"CISTERN_GPU_LIMIT_0=1023M", "FLAGS_initial_gpu_memory_in_mb=1024"},
    {"FLAGS_alloc_fill_value=0", "FLAGS_init_allocated_mem=false"},
};

const std::vector<std::vector<std::string>> kNoConflicts = {
    {"GE_USE_STATIC_MEMORY=2", "CISTERN_STATIC_MEMORY_POLICY=2"},
    {"GE_USE_STATIC_MEMORY=1", "CISTERN_STATIC_MEMORY_POLICY=2"},
    {"GE_USE_STATIC_MEMORY=0", "FLAGS_allocator_strategy=legacy"},
    {"GE_USE_STATIC_MEMORY=0", "CISTERN_MEMORY_OPTIMIZE=1"},
    {"FLAGS_allocator_strategy=legacy", "CISTERN_MEMORY_OPTIMIZE=1"},
    {"GE_USE_STATIC_MEMORY=2", "FLAGS_fraction_of_gpu_memory_to_use=0.5"},
    {"CISTERN_GPU_LIMIT=60%", "CISTERN_GPU_LIMIT_0=8G"},
    {"FLAGS_gpu_memory_limit_mb=0", "FLAGS_initial_gpu_memory_in_mb=1024"},
    {"FLAGS_gpu_memory_limit_mb=1024", "FLAGS_initial_gpu_memory_in_mb=1024"},
    {"CISTERN_GPU_LIMIT=1%", "FLAGS_initial_gpu_memory_in_mb=1024"},
    {"FLAGS_alloc_fill_value=0", "FLAGS_init_allocated_mem=true"},
    {"FLAGS_alloc_fill_value=-1", "FLAGS_init_allocated_mem=false"},
    {"FLAGS_alloc_fill_value=0"},
};

TEST_CASE("settings that cannot hold together are named in one line with their values") {
  for (const auto& pair : kConflicts) {
    INFO(pair[0] << " " << pair[1]);
    const auto loaded = load_with(pair);
    CHECK(loaded->status == Status::kBad);
    CHECK_FALSE(loaded->policy.pool);
    for (const std::string& entry : pair) {
      const size_t equals = entry.find('=');
      const std::string shown =
          entry.substr(0, equals + 1) + "\"" + entry.substr(equals + 1) + "\"";
      CHECK(contains(loaded->error.text, shown));
    }
    CHECK(std::string(loaded->error.text) == load_with({pair[1], pair[0]})->error.text);
  }
}

TEST_CASE("settings that go together are taken") {
  for (const auto& pair : kNoConflicts) {
    const auto loaded = load_with(pair);
    INFO(pair[0] << " " << loaded->error.text);
    CHECK(loaded->status == Status::kOk);
  }
}

TEST_CASE("a conflict across environment and file is one too") {
  const SettingsFile file("FLAGS_allocator_strategy=legacy\n");
  CHECK(load_with({file.entry(), "GE_USE_STATIC_MEMORY=2"})->status == Status::kBad);
}

}  // namespace
}  // namespace cistern::config::test::conflicts_test
