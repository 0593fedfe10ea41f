// SPDX-License-Identifier: Apache-2.0
// The functions in the files that a recording refers to, as far as those files are here.
// Whoever made a recording up chose the files, and may have written them: another process reads
// them, which may fail, and may take no longer and no more memory than kMostSeconds and kMostBytes
// say. Once such processes failed kMostFailures times no more functions are named. One thread.
#pragma once

#include <cstdint>
#include <string>

namespace cistern::alloc::tool {

inline constexpr unsigned kMostSeconds = 5;                // of processor time, for one function
inline constexpr long kMostNameUs = 200'000;               // of that for making a name readable
inline constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // that it may write to
inline constexpr int kMostFailures = 4;
// A name that is longer, as it is in the file or in C++, is cut off.
inline constexpr size_t kLongestFunction = 4096;

// The function that holds an offset of a file.
struct Function {
  std::string name;      // demangled; "" where it is not known
  uint64_t into = 0;     // how far the offset lies in it
  bool wrapper = false;  // program_code.h
  std::string place;     // "src/train.cc:42"; "" without debug information (lines.h)
};
Function function_at(const std::string& path, uint64_t offset);

}  // namespace cistern::alloc::tool
