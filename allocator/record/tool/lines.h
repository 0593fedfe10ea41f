// SPDX-License-Identifier: Apache-2.0
// Source lines of addresses of one ELF file, from the line tables of its debug information (DWARF 2
// to 5, section .debug_line), as compilers write it for -g. Only what stands in the file itself is
// read: no file of debug information beside it, and no source. Nothing of it is trusted: time and
// memory go by the size of the table. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/record/symbols.h"

namespace cistern::alloc::tool {

class SourceLines {
 public:
  // Of a larger table nothing is read.
  static constexpr size_t kMostBytes = size_t{128} << 20;

  // Of an open file, which stays open.
  explicit SourceLines(const Symbols& file);

  // "src/train.cc:42": the line of the function's own source file that has the code at `address`,
  // or led to it, where a function of another file is compiled into this one. `begin`: where the
  // function begins. "" where that is not known.
  std::string at(uint64_t begin, uint64_t address) const;

 private:
  // Code that the table has in order, from the unit of the table that begins at `unit`.
  struct Sequence {
    uint64_t low, high;
    size_t unit;
  };

  std::string_view lines_, line_texts_, texts_;  // sections
  std::vector<Sequence> sequences_;              // by address
};

}  // namespace cistern::alloc::tool
