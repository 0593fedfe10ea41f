// SPDX-License-Identifier: Apache-2.0
//
// What the loader will see in an ELF file. It is not read with readelf, which a machine that only
// runs programs need not have. No offset of the file is trusted: the file may be truncated or
// forged. Time and memory for reading are proportional to its size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cistern::config::tool {

struct Elf {
  bool valid = false;
  int bits = 0;
  uint16_t machine = 0;
  // The members below are set only for files in this machine's byte order.
  bool has_dynamic = false;
  bool cut_short = false;  // its headers name parts that the file lacks, like an incomplete copy
  // A shared library, not a program: it names no loader, and is no static position-independent
  // program (DF_1_PIE), which looks much the same.
  bool is_library = false;
  bool asks_for_audit = false;  // for libraries that the loader runs before it
  std::string interpreter;      // the loader it asks for; empty for static programs and libraries
  std::string soname;
  std::string rpath, runpath;  // where the loader is to look for its libraries
  std::vector<std::string> needed;
};

// `valid` is false when the file cannot be read or is not ELF.
Elf read_elf(const std::string& path);

// "64-bit x86-64"
std::string describe(const Elf& elf);

// Whether a symbol table of the file defines this function. A stripped file has only the dynamic
// one.
bool defines_function(const std::string& path, const std::string& name);

// The names of the functions that others can link with.
std::vector<std::string> exported_functions(const std::string& path);

// The bytes of a section; empty if there is none.
std::string section_of(const std::string& path, const std::string& name);

// Which of `markers` occur in the parts of the file that are loaded; results are in the order of
// `markers`. Debug information is not searched: it also names things that the program does not use.
std::vector<bool> find_markers(const std::string& path, const std::vector<std::string>& markers);

}  // namespace cistern::config::tool
