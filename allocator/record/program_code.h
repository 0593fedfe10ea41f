// SPDX-License-Identifier: Apache-2.0
// Chooses the frame of a call stack that names a call site. The report, the reader of recordings,
// the log of reuse and the out-of-memory line all use it. Any thread.
#pragma once

#include <algorithm>
#include <string_view>

#include "allocator/record/event.h"

namespace cistern::alloc {

// Whether the file with this path has code of the program. False for CUDA's own libraries, for
// interpreters, and for libraries whose purpose is to allocate: their functions do not tell the
// user anything.
bool is_program_code(std::string_view file);

// Whether a function only allocates for its caller. `symbol`: as in its file; false for "". True
// for the allocating functions of the CUDA runtime and driver, for `operator new`, and for
// everything in namespaces that allocate for others: the C++ library's, PyTorch's c10, RMM's,
// Thrust's, Paddle's memory.
bool is_wrapper(std::string_view symbol);

// The index of the frame that names the call site: the innermost Python function. Without one, the
// innermost program function that is no wrapper, then the innermost program function, then the
// innermost frame. `path(frame)`: the path of its file. `wraps(frame)`: whether its function is a
// wrapper. count > 0.
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

// The frames that are shown for a call site: the telling frame. If it has no name, as in a program
// without symbols, its callers too, up to the first one with a name and three frames in all.
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
