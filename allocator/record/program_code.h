// SPDX-License-Identifier: Apache-2.0
// Chooses the frame of a call stack that names a call site. The report, the reader of recordings,
// the log of reuse and the out-of-memory line all use it. Any thread.
#pragma once

#include <algorithm>
#include <string_view>

#include "allocator/record/event.h"

namespace cistern::alloc {

// `file`: its path. Nobody asks which function it was of CUDA's own libraries, of an interpreter
// that runs the program's functions, or of a library that is there to allocate.
bool is_program_code(std::string_view file);

// Whether the function with this symbol, as its file has it, allocates for its caller: the CUDA
// runtime's and the driver's allocating functions, `operator new`, and whatever is in a namespace
// that allocates for others (the C++ library's, PyTorch's c10, RMM's, Thrust's, Paddle's
// memory). False for "".
bool is_wrapper(std::string_view symbol);

// Its place in the stack: the innermost Python function, else the innermost function of the program
// itself that is no wrapper, else the innermost of the program, else the innermost. `path(frame)`
// is that of its file, `wraps(frame)` whether its function is a wrapper; count > 0.
template <typename Path, typename Wraps>
int telling_frame(const Frame* frames, int count, Path path, Wraps wraps) {
  for (int i = 0; i < count; ++i) {
    if (frames[i].python()) return i;
  }
  int wrapper = -1;
  for (int i = 0; i < count; ++i) {
    if (!is_program_code(path(frames[i]))) continue;
    if (!wraps(frames[i])) return i;
    if (wrapper < 0) wrapper = i;
  }
  return wrapper < 0 ? 0 : wrapper;
}

// The frames that are shown of a call site: the telling one. Where that has no name, as in a
// program without symbols, its callers too: three frames in all, up to the first with a name.
struct ShownFrames {
  int first, last;
};

template <typename Path, typename Wraps, typename Nameless>
ShownFrames shown_frames(const Frame* frames, int count, Path path, Wraps wraps,
                         Nameless nameless) {
  constexpr int kMost = 3;
  const int first = telling_frame(frames, count, path, wraps);
  const int most = std::min(first + kMost, count) - 1;
  int last = first;
  while (last < most && !frames[last].python() && nameless(frames[last])) ++last;
  return {first, last};
}

}  // namespace cistern::alloc
