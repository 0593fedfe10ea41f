// SPDX-License-Identifier: Apache-2.0
//
// The contract of each setting, row by row: its default, values it takes and values it refuses.

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/config/load_with.h"

namespace cistern::config::test::table_test {
namespace {

struct Contract {
  const char* name;
  const char* default_text;  // "" where the setting is unset
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

const std::vector<const char*> kBoolGood = {"1", "t", "true",  "Y", "YES",
                                            "0", "f", "False", "n", "no"};
const std::vector<const char*> kBoolBad = {"on", "off", "2", "tru", " true", "true ", "-1"};
const std::vector<const char*> kMbGood = {"1", "4096", "0x10", "007", "17592186044415"};
const std::vector<const char*> kMbBad = {
    "0", "-1", "+1", "1.5", "1k", " 1", "1 ", "0x", "17592186044416", "18446744073709551616"};
const std::vector<const char*> kLimitGood = {"1",   "8G",    "8g",   "512M", "1T",
                                             "60%", "62.5%", "100%", "0x10"};
const std::vector<const char*> kLimitBad = {"0",   "0%",  "100.1%",    "-5%", "%",
                                            "8GB", "8 G", "16777216T", "G"};

const std::vector<Contract> kContracts = {
    {"CISTERN_POOL", "on", {"on", "off"}, {"ON", "1", "true", "on "}},
    {"CISTERN_CONFIG", "", {}, {"/there/is/no/such/file"}},
    {"CISTERN_ON_ERROR", "inactive", {"inactive", "abort"}, {"die", "Abort"}},
    {"CISTERN_LOG",
     "warn",
     {"error", "warn", "info", "debug"},
     {"INFO", "4", "warning", "warn|info"}},
    {"CISTERN_LOG_FILE", "", {"/tmp/x y", "-", "/tmp/%p.%h.%r", "100%%"}, {"%", "%q", "a%"}},
    {"CISTERN_REPORT", "", {"text", "json"}, {"yes", "JSON", "text,json"}},
    {"CISTERN_REPORT_FILE", "", {"r", "/tmp/%p.%h.%r", "100%%"}, {"%", "%q", "a%"}},
    {"CISTERN_SITES", "", {"ranges", "stacks"}, {"Stacks", "true", "0"}},
    {"CISTERN_RECORD", "", {"r", "/tmp/%p.%h.%r", "100%%"}, {"%", "%q", "a%"}},
    {"FLAGS_gpu_memory_limit_mb", "0", {"0", "1", "0x400"}, {"-1", "1.0", "8G", "17592186044416"}},
    {"CISTERN_GPU_LIMIT", "", kLimitGood, kLimitBad},
    {"CISTERN_GPU_LIMIT_<n>", "", {}, {}},
    {"FLAGS_allocator_strategy",
     "",
     {"legacy", "naive_best_fit", "auto_growth", "thread_local"},
     {"Legacy", "best_fit", "auto-growth", "legacy "}},
    {"FLAGS_auto_growth_chunk_size_in_mb", "0", {"0", "64"}, {"-1", "a"}},
    {"FLAGS_fraction_of_gpu_memory_to_use",
     "0.92",
     {"0", "0.5", "1", "1.0", ".5", "5e-1", "92e-2"},
     {"1.01", "-0.1", "inf", "nan", "0.5x", "50%", "0,5", "1e400", "0x1p-1"}},
    {"FLAGS_initial_gpu_memory_in_mb", "", kMbGood, kMbBad},
    {"FLAGS_reallocate_gpu_memory_in_mb", "", kMbGood, kMbBad},
    {"FLAGS_free_idle_memory", "false", kBoolGood, kBoolBad},
    {"CISTERN_IDLE_MS", "1000", {"0", "1", "86400000"}, {"-1", "86400001", "1s"}},
    {"CISTERN_IDLE_KEEP_MB", "0", {"0", "256"}, {"-1", "1M"}},
    {"FLAGS_init_allocated_mem", "false", kBoolGood, kBoolBad},
    {"FLAGS_alloc_fill_value",
     "-1",
     {"-1", "0", "255", "0xEF", "+7"},
     {"-2", "256", "1.0", "--1", "+-1"}},
    {"FLAGS_fast_eager_deletion_mode", "true", kBoolGood, kBoolBad},
    {"FLAGS_eager_delete_tensor_gb",
     "-1.0",
     {"-1.0", "0", "0.5", "-1e300", "1e300", "+2"},
     {"inf", "-inf", "nan", "1GB", "1e999", "-", "e5", "."}},
    {"FLAGS_memory_fraction_of_eager_deletion", "1.0", {"0", "1", "0.5"}, {"1.5", "-0.5"}},
    {"FLAGS_eager_delete_scope", "true", kBoolGood, kBoolBad},
    {"FLAGS_limit_of_tmp_allocation",
     "-1",
     {"-1", "0", "9223372036854775807"},
     {"-2", "9223372036854775808", "1K"}},
    {"FLAGS_times_excess_than_required_tmp_allocation",
     "2",
     {"1", "2", "1.5", "1024"},
     {"0.99", "0", "-2"}},
    {"CISTERN_MEMPOOL_THRESHOLD",
     "auto",
     {"auto", "off", "1G", "64M", "1"},
     {"0", "on", "-1", "50%"}},
    {"GE_USE_STATIC_MEMORY", "0", {"0", "1", "2", "3", "4"}, {"5", "-1", "two"}},
    {"CISTERN_STATIC_MEMORY_POLICY", "0", {"0", "1", "2", "3", "4"}, {"5", "-1", "2.0"}},
    {"CISTERN_GRAPH_RANGE", "", {"step*", "[ab]?", "a,b"}, {"step[", "step\\"}},
    {"CISTERN_ATOMIC_CLEAN_POLICY", "0", {"0", "1"}, {"2", "true"}},
    {"CISTERN_MEMORY_OPTIMIZE", "", {"0", "1"}, {"2", "yes"}},
    {"CISTERN_PLAN", "off", {"off", "auto", "/tmp/p.plan"}, {}},
    {"CISTERN_SKIP_OPT_SET", "", {"fc", "fc*,*embedding*"}, {",fc", "fc,", "a,,b", "[a"}},
    {"CISTERN_SKIP_GRADS", "false", kBoolGood, kBoolBad},
    {"CISTERN_PRINT_LOG", "false", kBoolGood, kBoolBad},
    {"FLAGS_enable_inplace_whitelist", "false", kBoolGood, kBoolBad},
    {"FLAGS_fuse_parameter_groups_size", "3", {"-1", "1", "2147483647"}, {"0", "-2", "2147483648"}},
    {"FLAGS_fuse_parameter_memory_size", "-1.0", {"-1", "0", "16.5"}, {"inf", "16MB"}},
    {"CISTERN_MALLOC_CONF", "", {"narenas:4,retain:true"}, {}},
    {"FLAGS_initial_cpu_memory_in_mb", "500", kMbGood, kMbBad},
    {"FLAGS_fraction_of_cpu_memory_to_use", "1.0", {"1", "0.001"}, {"0", "1.1", "-1"}},
    {"FLAGS_use_pinned_memory", "true", kBoolGood, kBoolBad},
    {"CISTERN_PIN_EAGER", "false", kBoolGood, kBoolBad},
    {"CISTERN_PINNED_POOL", "true", kBoolGood, kBoolBad},
    {"FLAGS_fraction_of_cuda_pinned_memory_to_use", "0.5", {"0.5", "1"}, {"0", "2"}},
    {"CISTERN_FREE_SYNC", "auto", {"auto", "true", "false"}, {"", "1", "Auto", "yes"}},
    {"CISTERN_ALIGN", "512", {"512", "2M", "0x1000", "1G"}, {"256", "513", "3M", "-512", "2MB"}},
    {"CISTERN_ONLY_SIZES",
     "",
     {"1M", "1M-64M", "1M-64M,256K,1-1"},
     {"64M-1M", "1M-", "-1M", "1M,,2M", "1M,", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"}},
    {"CISTERN_ONLY_SITES", "", {"*libtorch*", "a,b"}, {",", "a,"}},
    {"CISTERN_POOL_FIRST", "", {"0", "1000"}, {"-1", "all"}},
};

TEST_CASE("the table has exactly the settings of the contract, once each") {
  std::multiset<std::string> rows;
  std::multiset<std::string> contract;
  for (const Row& row : kTable) rows.insert(row.name);
  for (const Contract& c : kContracts) contract.insert(c.name);
  CHECK(rows == contract);
}

TEST_CASE("defaults are the contract's") {
  for (size_t i = 0; i < kTable.size(); ++i) {
    INFO(kTable[i].name);
    const char* text = kTable[i].default_text;
    CHECK(std::string(text == nullptr ? "" : text) == kContracts[i].default_text);
    Value value{};
    CHECK((text == nullptr || parse_value(kTable[i], text, value)));
  }
}

TEST_CASE("good values are taken") {
  for (const Contract& c : kContracts) {
    for (const char* text : c.good) {
      INFO(c.name << "=" << text);
      const auto loaded = load_with({std::string(c.name) + "=" + text});
      CHECK(std::string(loaded->error.text).empty());
      CHECK(std::string(given_for(*loaded, c.name).text) == text);
    }
  }
}

TEST_CASE("bad values make the whole outcome bad") {
  for (const Contract& c : kContracts) {
    for (const char* text : c.bad) {
      INFO(c.name << "=" << text);
      const auto loaded = load_with({std::string(c.name) + "=" + text});
      CHECK(loaded->status == Status::kBad);
      // Behind the name there may be those that the setting has elsewhere.
      CHECK(std::string(loaded->error.text)
                .starts_with("cistern: error: " + std::string(c.name) + " "));
      CHECK(contains(loaded->error.text, " cannot be "));
      CHECK(contains(loaded->error.text, "; value seen \"" + std::string(text)));
      CHECK(contains(loaded->error.text, "; allowed: "));
      CHECK(contains(loaded->error.text, std::string("; example: ") + c.name + "="));
    }
  }
}

TEST_CASE("an empty value is bad for every setting") {
  for (const Row& row : kTable) {
    const std::string name = row.store == nullptr ? "CISTERN_GPU_LIMIT_5" : row.name;
    INFO(name);
    CHECK(load_with({name + "="})->status == Status::kBad);
  }
}

TEST_CASE("the example of each row is a good value") {
  for (const Row& row : kTable) {
    INFO(row.name);
    Value value{};
    CHECK(parse_value(row, row.example, value));
  }
}

TEST_CASE("every error line fits with its example") {
  const std::string longest(kMaxValueBytes, 'x');
  for (const Row& row : kTable) {
    if (row.type.kind == Kind::kText || row.type.kind == Kind::kPlan || row.store == nullptr)
      continue;
    const auto loaded = load_with({std::string(row.name) + "=" + longest + "%"});
    INFO(loaded->error.text);
    CHECK(std::string(loaded->error.text).size() + 1 < sizeof(Line));
  }
}

// The setting beside which this one means something, where it means nothing alone.
std::string looked_at_by(const Row& row) {
  const std::string name = row.name;
  const bool growth = row.group == Group::kChunks && contains(row.name, "auto_growth");
  if (growth || name == "CISTERN_ALIGN") return "FLAGS_allocator_strategy=auto_growth";
  if (contains(row.name, "CISTERN_IDLE_")) return "FLAGS_free_idle_memory=true";
  if (name == "CISTERN_ATOMIC_CLEAN_POLICY") return "FLAGS_init_allocated_mem=true";
  return name == "CISTERN_PIN_EAGER" ? "FLAGS_use_pinned_memory=true" : "X=1";
}

TEST_CASE("a setting says nothing") {
  for (const Row& row : kTable) {
    if (row.store == nullptr || row.type.kind == Kind::kReportFile) continue;
    if (std::string(row.name) == "CISTERN_CONFIG") continue;
    const auto loaded = load_with({std::string(row.name) + "=" + row.example, looked_at_by(row)});
    INFO(row.name);
    REQUIRE(loaded->warning_count == 0);
  }
}

TEST_CASE("alignment of blocks means something in the static memory modes") {
  CHECK(load_with({"CISTERN_ALIGN=2M"})->warning_count == 1);
  CHECK(load_with({"CISTERN_ALIGN=2M", "GE_USE_STATIC_MEMORY=1"})->warning_count == 0);
  CHECK(load_with({"CISTERN_ALIGN=2M", "GE_USE_STATIC_MEMORY=2"})->warning_count == 0);
  CHECK(load_with({"CISTERN_ALIGN=2M", "GE_USE_STATIC_MEMORY=3"})->warning_count == 0);
  CHECK(load_with({"CISTERN_ALIGN=2M", "GE_USE_STATIC_MEMORY=4"})->warning_count == 0);
}

TEST_CASE("no two settings are the same option of the launcher") {
  std::set<std::string> options;
  for (const Row& row : kTable) {
    std::string name = row.name;
    name.erase(0, name.find('_') + 1);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    INFO(name);
    CHECK(options.insert(name).second);
  }
}

}  // namespace
}  // namespace cistern::config::test::table_test
