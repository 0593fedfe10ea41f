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
  // Below: only for files of this machine's byte order.
  bool has_dynamic = false;
  bool cut_short = false;  // what its head tells of is not all there, as of a copy that broke off
  // To be loaded by a program, and none itself: no loader is asked for, and it is no program that
  // is both static and position-independent, which looks much the same.
  bool is_library = false;
  bool asks_for_audit = false;  // for libraries that the loader runs before it
  std::string interpreter;      // the loader it asks for; empty for static programs and libraries
  std::string soname;
  std::string rpath, runpath;  // where it has its libraries looked for
  std::vector<std::string> needed;
};

// `valid` is false when the file cannot be read or is not ELF.
Elf read_elf(const std::string& path);

// "64-bit x86-64"
std::string describe(const Elf& elf);

// Whether its symbol tables, of which a stripped file has only the dynamic one, define this
// function.
bool defines_function(const std::string& path, const std::string& name);

// The names of the functions that others can link with.
std::vector<std::string> exported_functions(const std::string& path);

// The bytes of a section; empty if there is none.
std::string section_of(const std::string& path, const std::string& name);

// Which of `markers` occur in what is loaded of the file, in the order given. Debug information,
// which names what the program was compiled with, is not.
std::vector<bool> find_markers(const std::string& path, const std::vector<std::string>& markers);

}  // namespace cistern::config::tool
