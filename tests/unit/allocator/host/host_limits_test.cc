// SPDX-License-Identifier: Apache-2.0
#include "allocator/host/system.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/catch.h"

namespace host_limits_test {

using namespace cistern::alloc::host;

namespace {

// A place where control groups are mounted.
class Groups {
 public:
  Groups() {
    char name[] = "/tmp/host_limits.XXXXXX";
    root_ = mkdtemp(name);
  }
  ~Groups() { std::filesystem::remove_all(root_); }
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text << "\n";
  }
  uint64_t limit(const std::string& groups) { return group_limit(groups.c_str(), root_.c_str()); }

 private:
  std::filesystem::path root_;
};

}  // namespace

TEST_CASE("the lowest limit of a control group and those above it counts") {
  Groups groups;
  groups.write("a/b/memory.max", "max");
  groups.write("a/memory.max", "1000000");
  CHECK(groups.limit("0::/a/b\n") == 1000000);
  groups.write("a/b/memory.max", "2000");
  CHECK(groups.limit("0::/a/b\n") == 2000);
  CHECK(groups.limit("0::/") == UINT64_MAX);
  groups.write("memory.max", "500");
  CHECK(groups.limit("0::/a/b") == 500);
  CHECK(groups.limit("0::/") == 500);
}

TEST_CASE("control groups of version 1 name their controller") {
  Groups groups;
  groups.write("memory/a/memory.limit_in_bytes", "3000");
  groups.write("a/memory.limit_in_bytes", "7");
  CHECK(groups.limit("9:name=systemd:/a\n8:cpu,memory:/a\n7:cpuset:/a\n") == 3000);
  CHECK(groups.limit("8:cpu:/a\n") == UINT64_MAX);
  CHECK(groups.limit("8:memory_too:/a\n") == UINT64_MAX);
}

TEST_CASE("control groups end with the text") {
  Groups groups;
  groups.write("a/memory.max", "2000");
  groups.write("b/memory.max", "1000");
  const std::string after_it = "0::/b\n";
  for (const std::string text : {"", "0::/a", "0::/a\n"}) {
    CHECK(groups.limit(text + '\0' + after_it) == (text.empty() ? UINT64_MAX : 2000));
  }
}

TEST_CASE("what says no limit, and what cannot be read, is none") {
  Groups groups;
  groups.write("a/memory.max", "");
  for (const char* text : {"", "0::/a", "0::/b", "nonsense", "0:", "0::", "\n\n", "1:memory:/"}) {
    INFO(text);
    CHECK(groups.limit(text) == UINT64_MAX);
  }
}

TEST_CASE("this machine has memory") {
  CHECK(usable_memory() > uint64_t{1} << 20);
  CHECK(usable_memory() < uint64_t{1} << 60);
}

}  // namespace host_limits_test
