// SPDX-License-Identifier: Apache-2.0
// The Python functions that the calling thread is in. Read from the interpreter's own records of
// them, since most callers of CUDA have given the interpreter's lock (GIL) back, and no function
// that takes references may be called without it. A thread's own frames do not change while it is
// here. CPython 3.11 to 3.13; other versions are not supported. Any thread.
#pragma once

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

}  // namespace cistern::shim
