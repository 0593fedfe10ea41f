// SPDX-License-Identifier: Apache-2.0
// One level of a call stack, as call sites and recordings keep it. Plain data.
#pragma once

#include <cstdint>

namespace cistern::alloc {

struct Frame {
  // Native: the path of the file whose code it is, "" where no file has it. Python: the source
  // file. A number of Names.
  uint32_t file;
  // Python: the function, a number of Names, and the line. Native: 0.
  uint32_t function;
  uint32_t line;
  // Native: the address of the call as the file's symbol table counts (without the file's load
  // address), or the address itself where no file has it. Python: 0.
  uint64_t offset;

  bool python() const { return function != 0; }
  friend bool operator==(const Frame&, const Frame&) = default;
};

inline constexpr int kMostFrames = 64;  // of one stack; the outermost beyond are left out

}  // namespace cistern::alloc
