// SPDX-License-Identifier: Apache-2.0
// Reads a recording (FORMAT.md) from the bytes of a file. Nothing in it is trusted: for any bytes,
// the result is either a consistent Recording or one line that says what is wrong.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/record/event.h"
#include "allocator/record/tool/events.h"

namespace cistern::alloc::tool {

struct RangeDefinition {
  uint32_t parent;  // a smaller number, or 0
  uint32_t name;
};

// Each definition is at the index of its number. [0] means "none": no text, no frames.
struct Recording {
  RecordingHead head;
  std::deque<std::string> names;
  std::deque<RangeDefinition> ranges;
  std::deque<uint32_t> phases;  // names
  std::deque<std::vector<Frame>> sites;
  // Sorted as by sort_by_time().
  Events events;

  const std::string& phase(uint32_t number) const { return names[phases[number]]; }
  // "outermost/.../innermost". Of a range deeper than 64 levels or longer than 16 KiB, only the
  // innermost part. "" for 0.
  std::string range(uint32_t number) const;
};

// Empty if the bytes are not a valid recording; `problem` says why.
std::optional<Recording> read_recording(std::span<const uint8_t> file, std::string& problem);

}  // namespace cistern::alloc::tool
