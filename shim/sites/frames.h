// SPDX-License-Identifier: Apache-2.0
// Frames of a call stack: the Python functions that a thread is in, and the names of all frames.
//
// Python frames are read from the interpreter's own records. Most callers of CUDA have given back
// the interpreter's lock (GIL), and without it no function that takes references may be called. A
// thread's own frames do not change while it is here. CPython 3.11 to 3.13 are supported.
//
// Names are for people and for matching. Finding one reads files of symbols, and may ask the
// program's C++ runtime to demangle, which calls malloc. So names are found for reports, for the
// line that says memory is out, and once a site if a setting has globs; never in an ordinary
// allocation. Any thread; no lock of Cistern's may be held.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/record/event.h"

namespace cistern::shim {

struct PythonCall {
  const void* code;         // the code object
  const void* instruction;  // the last one that was executed
  uint64_t identity() const;
};

// Innermost first, at most `most`; 0 without Python. `changes` is LoadedFiles::changes(): Python is
// looked for again when something was loaded.
int python_calls(PythonCall* out, int most, uint64_t changes);

// The frame of a call, valid at this moment; takes no reference.
alloc::Frame frame_of(const PythonCall& call);

// An address in the file that has the interpreter; 0 without Python.
uint64_t address_in_python();

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
