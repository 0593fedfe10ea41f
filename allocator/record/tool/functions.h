// SPDX-License-Identifier: Apache-2.0
// The functions in the files that a recording refers to, as far as those files are here.
// A forged recording can name any file, even a forged one. So another process reads the files,
// limited to kMostSeconds and kMostBytes, and it may fail. After kMostFailures failures no more
// functions are named. One thread.
#pragma once

#include <cstdint>
#include <string>

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
  std::string place;     // "src/train.cc:42"; "" without debug information (lines.h)
};
Function function_at(const std::string& path, uint64_t offset);

}  // namespace cistern::alloc::tool
