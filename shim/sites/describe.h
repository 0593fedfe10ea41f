// SPDX-License-Identifier: Apache-2.0
// The names of frames, for people and for matching. Reads the files of symbols and may ask the
// program's C++ runtime to demangle, which calls malloc: for reports, for the line that says memory
// is out, and once a site where a setting has globs; never a step of an ordinary allocation. Any
// thread; no lock of Cistern's may be held.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/record/event.h"

namespace cistern::shim {

// The symbol that holds a native frame, as the file has it ("_Z3addii"); "" where none does.
struct Symbol {
  char name[512];
  uint64_t offset;  // of the frame in it
};
void find_symbol(const alloc::Frame& frame, Symbol* out);

// The same, and as people write it: "add(int, int)", or the symbol where there is nothing to
// demangle or nobody who can.
struct FunctionName {
  Symbol symbol;
  char readable[1024];
};
void find_function(const alloc::Frame& frame, FunctionName* out);

// "function (file:line)" of a Python frame; "symbol+0x12 (libfoo.so)" of a native one, and "0x12
// (libfoo.so)" where the symbol is not known; "0x7f12" where no file has the code. Cut off to
// `size`; the length.
int describe_frame(const alloc::Frame& frame, char* out, size_t size);

void reset_descriptions_after_fork();

}  // namespace cistern::shim
