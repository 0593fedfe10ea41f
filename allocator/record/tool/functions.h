// SPDX-License-Identifier: Apache-2.0
// The functions and source lines in the files that a recording refers to, as far as those files are
// here. A forged recording can name any file, even a forged one. So another process reads the
// files, limited to kMostSeconds and kMostBytes, and it may fail. After kMostFailures failures no
// more functions are named. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/record/program_code.h"

namespace cistern::alloc::tool {

inline constexpr unsigned kMostSeconds = 5;                // of processor time, for one function
inline constexpr long kMostNameUs = 200'000;               // of it, to demangle a name
inline constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // of writable memory
inline constexpr int kMostFailures = 4;
// Longer names, mangled or demangled, are cut off.
inline constexpr size_t kLongestFunction = 4096;

// The function that holds an offset of a file.
struct Function {
  std::string name;      // demangled; "" if not known
  uint64_t into = 0;     // how far the offset lies in it
  bool wrapper = false;  // program_code.h
  std::string place;     // "src/train.cc:42"; "" without debug information
};
Function function_at(const std::string& path, uint64_t offset);

// Source lines of addresses of one ELF file, from the line tables of its debug information (DWARF 2
// to 5, section .debug_line), as compilers write it for -g. Reads only the file itself, no separate
// file with debug information and no source. The file is not trusted: time and memory are bounded
// by the size of the table.
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
