// SPDX-License-Identifier: Apache-2.0
// Source lines of addresses of one ELF file, from the line tables of its debug information (DWARF 2
// to 5, section .debug_line), as compilers write it for -g. Reads only the file itself, no separate
// file with debug information and no source. The file is not trusted: time and memory are bounded
// by the size of the table. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/record/program_code.h"

namespace cistern::alloc::tool {

class SourceLines {
 public:
  // A larger table is not read.
  static constexpr size_t kMostBytes = size_t{128} << 20;

  // `file` must be open, and stay open while the object lives.
  explicit SourceLines(const Symbols& file);

  // "src/train.cc:42": the line of the code at `address`. If a function of another source file is
  // inlined there, the line of this function's own file that led to it. `begin`: where the function
  // begins. "" if not known.
  std::string at(uint64_t begin, uint64_t address) const;

 private:
  // A sequence of code addresses in the table, in the unit that begins at offset `unit`.
  struct Sequence {
    uint64_t low, high;
    size_t unit;
  };

  std::string_view lines_, line_texts_, texts_;  // sections
  std::vector<Sequence> sequences_;              // by address
};

}  // namespace cistern::alloc::tool
