// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "tests/catch.h"
#include "tests/unit/config/load_with.h"

namespace cistern::config::test::load_test {
namespace {

std::string policy_line(const Loaded& loaded) {
  char line[1024];
  format_policy_line(loaded, line, sizeof line);
  return line;
}

TEST_CASE("nothing set: the pool is on and nobody is told anything") {
  const auto loaded = load_with({"PATH=/bin", "CISTERN", "FLAGSHIP=1"});
  CHECK(loaded->status == Status::kOk);
  CHECK(loaded->policy.pool);
  CHECK(loaded->policy.log == LogLevel::kWarn);
  CHECK(loaded->policy.report == ReportFormat::kNone);
  CHECK(loaded->policy.report_file == nullptr);
  CHECK(loaded->policy.cap_for(0).kind == CapKind::kNone);
  CHECK(loaded->warning_count == 0);
  CHECK(policy_line(*loaded) == "defaults");
}

TEST_CASE("without a list of variables nothing is set") {
  auto loaded = std::make_unique<Loaded>();
  load(nullptr, *loaded);
  CHECK(loaded->status == Status::kOk);
  CHECK_FALSE(loaded->policy.gpu_limit.set);
}

TEST_CASE("values reach their members, and members know that they were set") {
  const auto loaded =
      load_with({"CISTERN_LOG=debug", "CISTERN_REPORT=json", "CISTERN_REPORT_FILE=/r.%p",
                 "CISTERN_ON_ERROR=abort", "FLAGS_allocator_strategy=thread_local",
                 "FLAGS_alloc_fill_value=0xEF", "CISTERN_PLAN=/p", "CISTERN_ALIGN=2M",
                 "FLAGS_eager_delete_tensor_gb=-1.0", "CISTERN_POOL_FIRST=0"});
  REQUIRE(loaded->status == Status::kOk);
  const Policy& policy = loaded->policy;
  CHECK(policy.log == LogLevel::kDebug);
  CHECK(policy.report == ReportFormat::kJson);
  CHECK(std::string(policy.report_file) == "/r.%p");
  CHECK(policy.on_error == OnError::kAbort);
  CHECK(policy.allocator_strategy == Strategy::kThreadLocal);
  CHECK(policy.alloc_fill_value == 0xEF);
  CHECK(policy.plan.value.mode == PlanMode::kFile);
  CHECK(std::string(policy.plan.value.file) == "/p");
  CHECK(policy.align == 2u << 20);
  CHECK(policy.eager_delete_tensor_gb.set);
  CHECK(policy.eager_delete_tensor_gb == -1.0);
  CHECK(policy.pool_first.set);
  CHECK_FALSE(policy.free_idle_memory.set);
}

TEST_CASE("a chunk setting that the strategy does not look at is named in one line") {
  struct Row {
    const char* setting;
    const char* strategy;
    bool idle;
  };
  const Row rows[] = {
      {"FLAGS_auto_growth_chunk_size_in_mb=64", "", true},
      {"FLAGS_auto_growth_chunk_size_in_mb=64", "legacy", true},
      {"FLAGS_auto_growth_chunk_size_in_mb=64", "auto_growth", false},
      {"FLAGS_initial_gpu_memory_in_mb=64", "", false},
      {"FLAGS_initial_gpu_memory_in_mb=64", "thread_local", false},
      {"FLAGS_initial_gpu_memory_in_mb=64", "auto_growth", true},
      {"FLAGS_reallocate_gpu_memory_in_mb=64", "legacy", false},
      {"FLAGS_reallocate_gpu_memory_in_mb=64", "naive_best_fit", true},
      {"FLAGS_reallocate_gpu_memory_in_mb=64", "auto_growth", true},
      {"FLAGS_fraction_of_gpu_memory_to_use=0.5", "auto_growth", true},
      {"FLAGS_fraction_of_gpu_memory_to_use=0", "auto_growth", false},
      {"CISTERN_ALIGN=4096", "", true},
      {"CISTERN_ALIGN=4096", "legacy", false},
  };
  for (const Row& row : rows) {
    INFO(row.setting << " with " << row.strategy);
    const std::string strategy = std::string("FLAGS_allocator_strategy=") + row.strategy;
    const auto loaded = load_with({row.setting, *row.strategy == '\0' ? "X=1" : strategy});
    REQUIRE(loaded->status == Status::kOk);
    REQUIRE(loaded->warning_count == (row.idle ? 1 : 0));
    if (!row.idle) continue;
    const std::string setting = row.setting;
    CHECK(contains(loaded->warnings[0].text, setting.substr(0, setting.find('='))));
  }
}

TEST_CASE("a setting of Cistern's own that needs another one is named in one line without it") {
  struct Row {
    const char* setting;
    const char* needed;
    const char* other;  // with which it changes nothing either
  };
  const Row rows[] = {
      {"CISTERN_IDLE_MS=5", "FLAGS_free_idle_memory=true", "FLAGS_free_idle_memory=false"},
      {"CISTERN_IDLE_KEEP_MB=5", "FLAGS_free_idle_memory=true", "X=1"},
      {"CISTERN_ATOMIC_CLEAN_POLICY=1", "FLAGS_init_allocated_mem=true",
       "FLAGS_alloc_fill_value=-1"},
      {"CISTERN_ATOMIC_CLEAN_POLICY=1", "FLAGS_alloc_fill_value=0", "X=1"},
      {"CISTERN_PIN_EAGER=true", "FLAGS_use_pinned_memory=true", "FLAGS_use_pinned_memory=false"},
      {"CISTERN_PIN_EAGER=true", "FLAGS_initial_cpu_memory_in_mb=64", "X=1"},
  };
  for (const Row& row : rows) {
    INFO(row.setting << ", " << row.needed << ", " << row.other);
    CHECK(load_with({row.setting, row.needed})->warning_count == 0);
    const auto alone = load_with({row.setting, row.other});
    REQUIRE(alone->warning_count == 1);
    const std::string setting = row.setting;
    CHECK(contains(alone->warnings[0].text, setting.substr(0, setting.find('=') + 1)));
  }
}

TEST_CASE("CISTERN_POOL=off is off, not bad") {
  const auto loaded = load_with({"CISTERN_POOL=off"});
  CHECK(loaded->status == Status::kOff);
  CHECK(std::string(loaded->error.text).empty());
  CHECK(loaded->warning_count == 0);
}

TEST_CASE("unknown names are said beside CISTERN_POOL=off, too") {
  const auto said = load_with({"CISTERN_RECROD=f", "CISTERN_POOL=off", "CISTERN_GPU_LIMIT=1G"});
  REQUIRE(said->warning_count == 2);
  CHECK(std::string(said->warnings[0].text).find("mean CISTERN_RECORD?") != std::string::npos);
  CHECK(std::string(said->warnings[1].text).find("CISTERN_GPU_LIMIT;") != std::string::npos);
}

TEST_CASE("what changes nothing beside CISTERN_POOL=off is said in one line") {
  const auto said = load_with({"CISTERN_POOL=off", "CISTERN_LOG=info", "CISTERN_GPU_LIMIT_1=1G",
                               "CISTERN_REPORT=text", "CISTERN_PRINT_LOG=yes"});
  REQUIRE(said->status == Status::kOff);
  REQUIRE(said->warning_count == 1);
  for (const char* name : {"CISTERN_GPU_LIMIT_1", "CISTERN_REPORT", "CISTERN_PRINT_LOG"}) {
    CHECK(contains(said->warnings[0].text, name));
  }
  CHECK_FALSE(contains(said->warnings[0].text, "CISTERN_LOG"));
  // A recording has sites and phases without pools, too.
  const auto of_a_recording = {"CISTERN_SITES=stacks", "CISTERN_GRAPH_RANGE=step*"};
  for (const char* setting : of_a_recording) {
    CHECK(load_with({"CISTERN_POOL=off", "CISTERN_RECORD=f", setting})->warning_count == 0);
    CHECK(load_with({"CISTERN_POOL=off", setting})->warning_count == 1);
  }
}

TEST_CASE("a bad value leaves nothing of the policy but what to do about it") {
  const auto loaded = load_with({"CISTERN_REPORT=text", "CISTERN_LOG=loud",
                                 "CISTERN_ON_ERROR=abort", "CISTERN_GPU_LIMIT=1G"});
  CHECK(loaded->status == Status::kBad);
  CHECK_FALSE(loaded->policy.pool);
  CHECK(loaded->policy.report == ReportFormat::kNone);
  CHECK(loaded->policy.cap_for(0).kind == CapKind::kNone);
  CHECK(loaded->policy.on_error == OnError::kAbort);
}

TEST_CASE("CISTERN_ON_ERROR holds wherever it stands") {
  const std::string too_long = "CISTERN_PLAN=" + std::string(kMaxValueBytes + 1, 'x');
  CHECK(load_with({too_long, "CISTERN_ON_ERROR=abort"})->policy.on_error == OnError::kAbort);
  CHECK(load_with({"CISTERN_ON_ERROR=abort", too_long})->policy.on_error == OnError::kAbort);
  CHECK(load_with({too_long})->policy.on_error == OnError::kInactive);
  const SettingsFile file("CISTERN_ON_ERROR=abort\nCISTERN_LOG=loud\n");
  CHECK(load_with({file.entry()})->policy.on_error == OnError::kAbort);
}

TEST_CASE("of several bad values the first of the table is named, whatever the order") {
  const std::string one = load_with({"CISTERN_LOG=x", "GE_USE_STATIC_MEMORY=9"})->error.text;
  const std::string two = load_with({"GE_USE_STATIC_MEMORY=9", "CISTERN_LOG=x"})->error.text;
  CHECK(one == two);
  CHECK(contains(one, "CISTERN_LOG"));
}

TEST_CASE("the first of two equal names counts, as for getenv") {
  const auto loaded = load_with({"CISTERN_LOG=info", "CISTERN_LOG=nonsense"});
  CHECK(loaded->policy.log == LogLevel::kInfo);
}

TEST_CASE("limits: per device before common, common in either unit") {
  auto loaded = load_with({"CISTERN_GPU_LIMIT=50%", "CISTERN_GPU_LIMIT_2=1G"});
  REQUIRE(loaded->status == Status::kOk);
  CHECK(loaded->policy.cap_for(0).percent == 50);
  CHECK(loaded->policy.cap_for(2).bytes == 1u << 30);
  CHECK(loaded->policy.cap_for(1000).percent == 50);
  CHECK(policy_line(*loaded) == "CISTERN_GPU_LIMIT=50% CISTERN_GPU_LIMIT_2=1G");
  loaded = load_with({"FLAGS_gpu_memory_limit_mb=3"});
  CHECK(loaded->policy.cap_for(7).bytes == 3u << 20);
  CHECK(load_with({"FLAGS_gpu_memory_limit_mb=0"})->policy.cap_for(0).kind == CapKind::kNone);
}

TEST_CASE("a device number has one spelling and an end") {
  CHECK(load_with({"CISTERN_GPU_LIMIT_63=1G"})->status == Status::kOk);
  const auto high = load_with({"CISTERN_GPU_LIMIT_64=1G"});
  CHECK(high->status == Status::kBad);
  CHECK(contains(high->error.text, "from 0 to 63"));
  for (const char* name : {"CISTERN_GPU_LIMIT_01", "CISTERN_GPU_LIMIT_", "CISTERN_GPU_LIMIT_x",
                           "CISTERN_GPU_LIMIT_<n>", "CISTERN_GPU_LIMIT_0x1"}) {
    INFO(name);
    const auto loaded = load_with({std::string(name) + "=1G"});
    CHECK(loaded->status == Status::kOk);
    CHECK(loaded->warning_count == 1);
  }
}

TEST_CASE("origins: default, environment, launcher") {
  const auto loaded =
      load_with({"CISTERN_LOG=info", "CISTERN_REPORT=text", "CISTERN_GPU_LIMIT_1=1G",
                 "CISTERN_LAUNCHER=CISTERN_REPORT,CISTERN_GPU_LIMIT_1,CISTERN_POOL,junk"});
  CHECK(given_for(*loaded, "CISTERN_LOG").origin == Origin::kEnv);
  CHECK(given_for(*loaded, "CISTERN_REPORT").origin == Origin::kLauncher);
  CHECK(given_for(*loaded, "CISTERN_GPU_LIMIT_1").origin == Origin::kLauncher);
  CHECK(given_for(*loaded, "CISTERN_POOL").origin == Origin::kDefault);
  CHECK(loaded->warning_count == 0);
  CHECK(loaded->launched);
  CHECK(load_with({"CISTERN_LAUNCHER="})->launched);
  CHECK_FALSE(load_with({"CISTERN_LOG=info"})->launched);
}

TEST_CASE("values are kept when the environment changes") {
  std::string entry = "CISTERN_LOG_FILE=/tmp/a";
  const char* envp[] = {entry.c_str(), nullptr};
  const auto loaded = std::make_unique<Loaded>();
  load(envp, *loaded);
  entry.assign(entry.size(), '#');
  CHECK(std::string(loaded->policy.log_file) == "/tmp/a");
}

TEST_CASE("a second load forgets the first") {
  const auto loaded =
      load_with({"CISTERN_REPROT=1", "CISTERN_GPU_LIMIT_3=1G", "CISTERN_LAUNCHER="});
  const char* nothing[] = {nullptr};
  load(nothing, *loaded);
  CHECK(loaded->warning_count == 0);
  CHECK(policy_line(*loaded) == "defaults");
  CHECK_FALSE(loaded->launched);
}

TEST_CASE("a report file without a report is said to be useless") {
  const auto loaded = load_with({"CISTERN_REPORT_FILE=/r"});
  REQUIRE(loaded->warning_count == 1);
  CHECK(contains(loaded->warnings[0].text, "set CISTERN_REPORT=text"));
}

TEST_CASE("settings that do not fit are refused, each and together") {
  const std::string full(kMaxValueBytes, 'x');
  CHECK(load_with({"CISTERN_LOG_FILE=" + full})->status == Status::kOk);
  const auto loaded = load_with({"CISTERN_LOG_FILE=" + full + "x"});
  CHECK(loaded->status == Status::kBad);
  CHECK(contains(loaded->error.text, "too long"));
  std::vector<std::string> many;
  for (const Row& row : kTable) {
    many.push_back(std::string(row.store == nullptr ? "CISTERN_GPU_LIMIT_0" : row.name) + "=" +
                   full);
  }
  CHECK(contains(load_with(many)->error.text, "too long"));
}

TEST_CASE("more warnings than there is room for are counted in the last") {
  std::vector<std::string> many;
  for (size_t i = 0; i < kMaxWarnings + 10; ++i)
    many.push_back("CISTERN_ZZZZZZZZ_" + std::to_string(i) + "=1");
  const auto loaded = load_with(many);
  CHECK(loaded->status == Status::kOk);
  CHECK(loaded->warning_count == kMaxWarnings);
  CHECK(contains(loaded->warnings[kMaxWarnings - 1].text, "; 11 of them"));
}

TEST_CASE("errno is left as it was") {
  errno = 42;
  load_with({"CISTERN_CONFIG=/there/is/no/such/file"});
  CHECK(errno == 42);
}

}  // namespace
}  // namespace cistern::config::test::load_test
