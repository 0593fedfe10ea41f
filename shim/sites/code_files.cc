// SPDX-License-Identifier: Apache-2.0
#include "shim/sites/code_files.h"

#include <limits.h>
#include <link.h>
#include <unistd.h>

#include <string_view>

#include "shim/process/names.h"

// Both are the linker's: where this object begins, and where its code ends.
extern "C" {
// NOLINTNEXTLINE(readability-identifier-naming)
[[gnu::visibility("hidden")]] extern const char __ehdr_start;
[[gnu::visibility("hidden")]] extern const char etext;
}

namespace cistern::shim {
namespace {

struct Search {
  CodeAddress* codes;
  int count;
};

bool holds(const dl_phdr_info& file, uint64_t address) {
  for (int i = 0; i < file.dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = file.dlpi_phdr[i];
    if (part.p_type == PT_LOAD && address - file.dlpi_addr - part.p_vaddr < part.p_memsz) {
      return true;
    }
  }
  return false;
}

// The program itself has no name there.
uint32_t name_of(const dl_phdr_info& file) {
  if (file.dlpi_name != nullptr && file.dlpi_name[0] != '\0') return names().number(file.dlpi_name);
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program);
  return length <= 0 ? 0 : names().number(std::string_view(program, static_cast<size_t>(length)));
}

int look(dl_phdr_info* file, size_t /*size*/, void* data) {
  const Search& search = *static_cast<Search*>(data);
  uint32_t name = 0;
  for (int i = 0; i < search.count; ++i) {
    CodeAddress& code = search.codes[i];
    if (code.file != 0 || !holds(*file, code.address)) continue;
    if (name == 0) name = name_of(*file);
    code.file = name;
    if (name != 0) code.offset = code.address - file->dlpi_addr;
  }
  return 0;
}

}  // namespace

void find_files(CodeAddress* codes, int count) {
  for (int i = 0; i < count; ++i) {
    codes[i].file = 0;
    codes[i].offset = codes[i].address;
  }
  Search search{codes, count};
  dl_iterate_phdr(look, &search);
}

bool in_this_object(uint64_t address) {
  const auto first = reinterpret_cast<uint64_t>(&__ehdr_start);
  return address - first < reinterpret_cast<uint64_t>(&etext) - first;
}

}  // namespace cistern::shim
