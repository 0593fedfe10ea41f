// SPDX-License-Identifier: Apache-2.0
// Which frame of a call stack says most to somebody who asks who allocates.
#pragma once

#include <string_view>

#include "allocator/record/frame.h"

namespace cistern::alloc {

// `file`: its path. Nobody asks which function of CUDA's own libraries it was, nor which of an
// interpreter that runs the program's functions.
inline bool is_program_code(std::string_view file) {
  file.remove_prefix(file.rfind('/') + 1);
  for (const std::string_view library :
       {"libcuda.", "libcudart.", "libpython", "python", "_ctypes", "libffi"}) {
    if (file.starts_with(library)) return false;
  }
  return true;
}

// Its place in the stack: the innermost Python function, else the innermost one of the program
// itself, else the innermost. `path(frame)` is that of its file; count > 0.
template <typename Path>
int telling_frame(const Frame* frames, int count, Path path) {
  for (int i = 0; i < count; ++i) {
    if (frames[i].python()) return i;
  }
  for (int i = 0; i < count; ++i) {
    if (is_program_code(path(frames[i]))) return i;
  }
  return 0;
}

}  // namespace cistern::alloc
