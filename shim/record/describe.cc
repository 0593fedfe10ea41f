// SPDX-License-Identifier: Apache-2.0
#include "shim/record/describe.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "allocator/record/program_code.h"
#include "shim/nvtx/ranges.h"
#include "shim/process/names.h"
#include "shim/sites/describe.h"
#include "shim/sites/sites.h"

namespace cistern::shim {
namespace {

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
  if (count == 0) {
    std::snprintf(out, size, "an unknown call site");
    return out;
  }
  Symbol symbol;
  const auto path = [](const alloc::Frame& frame) { return names().text(frame.file); };
  const auto symbol_of = [&](const alloc::Frame& frame) {
    find_symbol(frame, &symbol);
    return std::string_view(symbol.name);
  };
  const auto wraps = [&](const alloc::Frame& f) { return alloc::is_wrapper(symbol_of(f)); };
  const int first = alloc::telling_frame(frames, count, path, wraps);
  const int last = std::min(first + alloc::kNamelessShown, count) - 1;
  auto length = static_cast<size_t>(describe_frame(frames[first], out, size));
  for (int i = first; i < last && !frames[i].python() && symbol_of(frames[i]).empty(); ++i) {
    length += static_cast<size_t>(std::snprintf(out + length, size - length, " from "));
    if (length >= size) break;
    length += static_cast<size_t>(describe_frame(frames[i + 1], out + length, size - length));
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
