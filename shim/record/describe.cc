// SPDX-License-Identifier: Apache-2.0
#include "shim/record/describe.h"

#include <cstdio>
#include <cstring>

#include "shim/nvtx/ranges.h"
#include "shim/process/names.h"
#include "shim/sites/describe.h"
#include "shim/sites/sites.h"

namespace cistern::shim {
namespace {

bool begins(const char* text, const char* with) {
  return std::strncmp(text, with, std::strlen(with)) == 0;
}

// Nobody asks which function of CUDA's libraries it was, nor which one of an interpreter that runs
// a program's functions.
bool of_the_program(const alloc::Frame& frame) {
  if (frame.python()) return true;
  const char* path = names().text(frame.file);
  const char* slash = std::strrchr(path, '/');
  const char* file = slash == nullptr ? path : slash + 1;
  for (const char* library :
       {"libcuda.", "libcudart.", "libpython", "python", "_ctypes", "libffi"}) {
    if (begins(file, library)) return false;
  }
  return true;
}

int own_range(uint32_t range, char* out, size_t size) {
  const Range own = range_of(range);
  const int before = own.parent == 0 ? 0 : own_range(own.parent, out, size);
  if (static_cast<size_t>(before) >= size) return before;
  return before + std::snprintf(out + before, size - static_cast<size_t>(before), "%s%s",
                                before == 0 ? "" : "/", names().text(own.name));
}

}  // namespace

const char* describe_site(uint32_t site, char* out, size_t size) {
  alloc::Frame frames[alloc::kMostFrames];
  const int count = site == 0 ? 0 : site_frames(site, frames);
  int chosen = 0;
  while (chosen < count && !of_the_program(frames[chosen])) ++chosen;
  if (chosen == count) chosen = 0;
  if (count == 0) {
    std::snprintf(out, size, "an unknown call site");
  } else {
    describe_frame(frames[chosen], out, size);
  }
  return out;
}

bool describe_level(uint32_t site, int level, char* out, size_t size) {
  alloc::Frame frames[alloc::kMostFrames];
  if (site == 0 || level >= site_frames(site, frames)) return false;
  describe_frame(frames[level], out, size);
  return true;
}

const char* describe_range(uint32_t range, char* out, size_t size) {
  if (range == 0) {
    std::snprintf(out, size, "no range");
  } else {
    own_range(range, out, size);
  }
  return out;
}

}  // namespace cistern::shim
