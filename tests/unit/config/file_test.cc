// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include "tests/catch.h"
#include "tests/unit/config/load_with.h"

namespace cistern::config::test::file_test {
namespace {

TEST_CASE("a file fills in what the environment leaves unset") {
  const SettingsFile file("CISTERN_LOG=debug\nCISTERN_REPORT=json\n");
  const auto loaded = load_with({file.entry(), "CISTERN_LOG=error"});
  REQUIRE(loaded->status == Status::kOk);
  CHECK(loaded->policy.log == LogLevel::kError);
  CHECK(loaded->policy.report == ReportFormat::kJson);
  CHECK(given_for(*loaded, "CISTERN_LOG").origin == Origin::kEnv);
  CHECK(given_for(*loaded, "CISTERN_REPORT").origin == Origin::kFile);
  CHECK(given_for(*loaded, "CISTERN_REPORT").line == 2);
}

TEST_CASE("every form of a line is understood") {
  const SettingsFile file(
      "# comment\n\n  \t\n"
      "  CISTERN_LOG =  info  # why\n"
      "--FLAGS_gpu_memory_limit_mb=8192\r\n"
      "\tCISTERN_LOG_FILE=/tmp/a#b\n"
      "CISTERN_REPORT=text#no blank before\n");
  const auto loaded = load_with({file.entry()});
  CHECK(loaded->status == Status::kBad);  // the last line: # belongs to the value
  CHECK(contains(loaded->error.text, "\"text#no blank before\""));

  const SettingsFile good(
      "# comment\n\n  \t\n"
      "  CISTERN_LOG =  info  # why\n"
      "--FLAGS_gpu_memory_limit_mb=8192\r\n"
      "\tCISTERN_LOG_FILE=/tmp/a#b");  // and no line end
  const auto taken = load_with({good.entry()});
  INFO(taken->error.text);
  REQUIRE(taken->status == Status::kOk);
  CHECK(taken->policy.log == LogLevel::kInfo);
  CHECK(taken->policy.gpu_memory_limit_mb == 8192);
  CHECK(std::string(taken->policy.log_file) == "/tmp/a#b");
}

TEST_CASE("a bad line is named with file and line") {
  struct Case {
    const char* text;
    int line;
    const char* what;
  };
  const Case cases[] = {
      {"CISTERN_LOG=info\nrubbish\n", 2, "not a setting"},
      {"=info\n", 1, "not a setting"},
      {"export CISTERN_LOG=info\n", 1, "not a setting"},
      {"--FLAGS_free_idle_memory\n", 1, "not a setting"},
      {"CISTERN_LOG=info\n\nCISTERN_LOG=warn\n", 3, "given twice"},
      {"\nCISTERN_CONFIG=/x\n", 2, "cannot name another"},
  };
  for (const Case& c : cases) {
    const SettingsFile file(c.text);
    const auto loaded = load_with({file.entry()});
    INFO(c.text << loaded->error.text);
    CHECK(loaded->status == Status::kBad);
    CHECK(contains(loaded->error.text, c.what));
    CHECK(contains(loaded->error.text, file.path() + ":" + std::to_string(c.line) + ":"));
  }
}

TEST_CASE("a bad value from a file is named with file and line") {
  const SettingsFile file("\nCISTERN_LOG=loud\n");
  const auto loaded = load_with({file.entry()});
  CHECK(contains(loaded->error.text, "CISTERN_LOG cannot be used (" + file.path() + ":2)"));
  const SettingsFile empty("CISTERN_LOG=\n");
  CHECK(contains(load_with({empty.entry()})->error.text, "value seen \"\""));
}

TEST_CASE("a line that the environment overrides is not looked at") {
  const SettingsFile file("CISTERN_LOG=loud\n");
  CHECK(load_with({file.entry(), "CISTERN_LOG=info"})->status == Status::kOk);
}

TEST_CASE("unknown names in a file: a warning with the line, silence for FLAGS_ and GE_") {
  const SettingsFile file(
      "FLAGS_check_nan_inf=1\nGE_X=1\nCISTERN_REPROT=text\nOMP_NUM_THREADS=4\n");
  const auto loaded = load_with({file.entry()});
  CHECK(loaded->status == Status::kOk);
  REQUIRE(loaded->warning_count == 2);
  CHECK(contains(loaded->warnings[0].text, file.path() + ":3: "));
  CHECK(contains(loaded->warnings[0].text, "did you mean CISTERN_REPORT?"));
  CHECK(contains(loaded->warnings[1].text, "OMP_NUM_THREADS"));
}

TEST_CASE("limits per device may come from a file") {
  const SettingsFile file("CISTERN_GPU_LIMIT_1=1G\n");
  CHECK(load_with({file.entry()})->policy.cap_for(1).bytes == 1u << 30);
  const SettingsFile high("CISTERN_GPU_LIMIT_64=1G\n");
  CHECK(load_with({high.entry()})->status == Status::kBad);
}

TEST_CASE("a file that cannot be had is a bad value") {
  const std::string fifo = "/tmp/cistern-fifo-" + std::to_string(::getpid());
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  for (const std::string& path :
       {std::string("/there/is/none"), std::string("/tmp"), std::string("/dev/zero"), fifo}) {
    const auto loaded = load_with({"CISTERN_CONFIG=" + path});
    INFO(path);
    CHECK(loaded->status == Status::kBad);
    CHECK(contains(loaded->error.text, "CISTERN_CONFIG cannot be read; value seen \"" + path));
  }
  ::unlink(fifo.c_str());
}

TEST_CASE("a file may be as long as allowed and not longer") {
  const std::string line = "CISTERN_LOG=info\n";
  const SettingsFile full(line + std::string(kMaxFileBytes - line.size(), '#'));
  CHECK(load_with({full.entry()})->status == Status::kOk);
  const SettingsFile over(line + std::string(kMaxFileBytes - line.size() + 1, '#'));
  const auto loaded = load_with({over.entry()});
  CHECK(loaded->status == Status::kBad);
  CHECK(contains(loaded->error.text, "File too large"));
}

TEST_CASE("what to do about bad values is honoured wherever it stands in the file") {
  const std::string abort = "CISTERN_ON_ERROR=abort\n";
  for (const std::string& bad :
       {std::string("garbage\n"), std::string("CISTERN_LOG=info\nCISTERN_LOG=info\n"),
        std::string("CISTERN_LOG=loud\n"), std::string("CISTERN_GPU_LIMIT_64=1G\n"),
        std::string("CISTERN_CONFIG=/x\n"), std::string("a\0b\n", 4)}) {
    for (const std::string& text : {bad + abort, abort + bad, bad + bad + abort + bad}) {
      const SettingsFile file(text);
      const auto loaded = load_with({file.entry()});
      INFO(text << loaded->error.text);
      CHECK(loaded->status == Status::kBad);
      CHECK(loaded->policy.on_error == OnError::kAbort);
    }
    const SettingsFile file(bad + abort);
    const auto overridden = load_with({file.entry(), "CISTERN_ON_ERROR=inactive"});
    CHECK(overridden->policy.on_error == OnError::kInactive);
  }
}

TEST_CASE("the file says what to do about bad values in the environment too") {
  const SettingsFile file("garbage\nCISTERN_ON_ERROR=abort\n");
  for (const std::string& bad :
       {std::string("CISTERN_GPU_LIMIT_64=1G"), "CISTERN_LOG=" + std::string(5000, 'x')}) {
    for (const auto& loaded : {load_with({bad, file.entry()}), load_with({file.entry(), bad})}) {
      CHECK(loaded->policy.on_error == OnError::kAbort);
      // The first error is the one that is told.
      CHECK_FALSE(contains(loaded->error.text, "garbage"));
    }
  }
}

TEST_CASE("of several bad lines the first is named") {
  const SettingsFile file("garbage\nCISTERN_ON_ERROR=abort\nrubbish\nCISTERN_ON_ERROR=abort\n");
  CHECK(contains(load_with({file.entry()})->error.text, "garbage"));
}

TEST_CASE("a file for which the environment left no room is refused") {
  const SettingsFile file("CISTERN_LOG=info\n");
  std::vector<std::string> entries{file.entry()};
  size_t left = kStorageBytes - (file.path().size() + 1);
  for (size_t i = 0; i < kTable.size() && left > 0; ++i) {
    const std::string name = kTable[i].name;
    if (kTable[i].store == nullptr || name == "CISTERN_CONFIG") continue;
    const size_t size = left < kMaxValueBytes ? left : kMaxValueBytes;
    entries.push_back(name + "=" + std::string(size - 1, 'x'));
    left -= size;
  }
  REQUIRE(left == 0);
  const auto loaded = load_with(entries);
  CHECK(loaded->status == Status::kBad);
  CHECK(contains(loaded->error.text, "File too large"));
  CHECK(loaded->storage_used == kStorageBytes);
}

TEST_CASE("a NUL byte in a file is not a setting") {
  const SettingsFile file(std::string("CISTERN_LOG=info\0x\n", 19));
  CHECK(load_with({file.entry()})->status == Status::kBad);
  const SettingsFile empty("");
  CHECK(load_with({empty.entry()})->status == Status::kOk);
}

}  // namespace
}  // namespace cistern::config::test::file_test
