// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/program_code.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "tests/catch.h"

using cistern::alloc::Symbols;

extern "C" [[gnu::noinline]] int a_function_to_be_found(int x) { return x * 3; }
extern "C" {
[[gnu::used]] int a_variable_not_to_be_found = 3;
}

namespace {

uint64_t offset_of(const void* address) {
  Dl_info info;
  REQUIRE(dladdr(address, &info) != 0);
  return reinterpret_cast<uint64_t>(address) - reinterpret_cast<uint64_t>(info.dli_fbase);
}

struct TemporaryFile {
  char path[32] = "/tmp/symbols_test.XXXXXX";
  explicit TemporaryFile(const std::string& content) {
    close(mkstemp(path));
    std::ofstream(path, std::ios::binary) << content;
  }
  ~TemporaryFile() { unlink(path); }
};

}  // namespace

TEST_CASE("an address is named by the function that holds it") {
  Symbols symbols;
  REQUIRE(symbols.open("/proc/self/exe"));
  const uint64_t start = offset_of(reinterpret_cast<void*>(a_function_to_be_found));
  uint64_t begin = 0;
  const char* name = symbols.find(start + 1, &begin);
  REQUIRE(name != nullptr);
  CHECK(std::string(name) == "a_function_to_be_found");
  CHECK(begin == start);
  CHECK(symbols.find(0, &begin) == nullptr);
  symbols.close();
}

TEST_CASE("a variable names no address") {
  Symbols symbols;
  REQUIRE(symbols.open("/proc/self/exe"));
  uint64_t begin = 0;
  const char* name = symbols.find(offset_of(&a_variable_not_to_be_found), &begin);
  CHECK((name == nullptr || std::string(name) != "a_variable_not_to_be_found"));
  symbols.close();
}

TEST_CASE("a stripped library has the names that others link with") {
  const void* function = dlsym(RTLD_DEFAULT, "lfind");  // of libc, and of no sanitizer
  Dl_info info;
  REQUIRE(dladdr(function, &info) != 0);
  Symbols symbols;
  REQUIRE(symbols.open(info.dli_fname));
  uint64_t begin = 0;
  const char* name = symbols.find(offset_of(function) + 4, &begin);
  REQUIRE(name != nullptr);
  CHECK(std::string(name) == "lfind");
  symbols.close();
}

TEST_CASE("what is no ELF file has no symbols") {
  Symbols symbols;
  CHECK_FALSE(symbols.open("/proc/self/none"));
  CHECK_FALSE(symbols.open("/tmp"));
  CHECK_FALSE(symbols.open("/dev/null"));
  const TemporaryFile text("not ELF at all");
  CHECK_FALSE(symbols.open(text.path));
}

// Files that no other process opens.
TEST_CASE("of what is no file of symbols nothing is opened") {
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  REQUIRE(watch >= 0);
  char pipe[] = "/tmp/symbols_test.pipe.XXXXXX";
  close(mkstemp(pipe));
  unlink(pipe);
  REQUIRE(mkfifo(pipe, 0600) == 0);
  const TemporaryFile file("regular");
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  const char* device = terminal >= 0 ? ptsname(terminal) : pipe;  // if there is no /dev/pts
  for (const char* path : {static_cast<const char*>(pipe), device, "/proc/self/io", file.path}) {
    REQUIRE(inotify_add_watch(watch, path, IN_OPEN) >= 0);
    Symbols symbols;
    CHECK_FALSE(symbols.open(path));
    inotify_event seen;
    CHECK((read(watch, &seen, sizeof seen) > 0) == (path == file.path));
  }
  unlink(pipe);
  close(terminal);
  close(watch);
}

// All headers of sections name the same table, in which there is no function.
TEST_CASE("a table is read once, however often a file names it") {
  constexpr size_t kHeaders = 65535, kTable = size_t{1} << 26;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = kHeaders;
  header.e_shoff = sizeof header;
  Elf64_Shdr section{};
  section.sh_type = SHT_SYMTAB;
  section.sh_entsize = sizeof(Elf64_Sym);
  section.sh_offset = section.sh_size = kTable;
  std::string content(reinterpret_cast<const char*>(&header), sizeof header);
  for (size_t i = 0; i < kHeaders; ++i) {
    content.append(reinterpret_cast<const char*>(&section), sizeof section);
  }
  const TemporaryFile file(content);
  REQUIRE(truncate(file.path, 2 * kTable) == 0);  // a hole
  Symbols symbols;
  CHECK_FALSE(symbols.open(file.path));
}

TEST_CASE("a damaged ELF file is read without harm") {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::string head((std::istreambuf_iterator<char>(file)), {});
  Elf64_Ehdr header;
  std::memcpy(&header, head.data(), sizeof header);
  std::minstd_rand random(1);
  for (int i = 0; i < 20; ++i) {
    std::string damaged = head;
    for (int change = 0; change < 50; ++change) {
      const size_t at = change % 2 == 0 ? random() % sizeof header
                                        : header.e_shoff + random() % (header.e_shnum * 64u);
      if (at > 5) damaged[at] = static_cast<char>(random());
    }
    if (i % 4 == 0) damaged.resize(random() % damaged.size());
    const TemporaryFile copy(damaged);
    Symbols symbols;
    uint64_t begin;
    if (symbols.open(copy.path)) symbols.find(0x10000, &begin);
    symbols.close();
  }
}
