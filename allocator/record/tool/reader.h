// SPDX-License-Identifier: Apache-2.0
// Reads a recording (FORMAT.md) from the bytes of a file. Nothing in it is trusted: whatever the
// bytes are, either all that is told here is consistent, or there is one line that says what is
// wrong. scripts/cistern_trace.py reads the same, with the same lines.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/record/encoding.h"
#include "allocator/record/event.h"
#include "allocator/record/tool/events.h"

namespace cistern::alloc::tool {

struct RangeDefinition {
  uint32_t parent;  // a smaller number, or 0
  uint32_t name;
};

// Definitions stand at their number; [0] is "none": no text, no frames.
struct Recording {
  RecordingHead head;
  std::deque<std::string> names;
  std::deque<RangeDefinition> ranges;
  std::deque<uint32_t> phases;  // names
  std::deque<std::vector<Frame>> sites;
  // By time. Of those with the same time, frees come before allocations, and those of one thread in
  // the order in which it recorded them.
  Events events;

  const std::string& phase(uint32_t number) const { return names[phases[number]]; }
  // "outermost/.../innermost"; of one deeper than 64, or longer than 16 KiB, the innermost of it.
  // "" for 0.
  std::string range(uint32_t number) const;
};

// Nothing if the bytes are no whole recording; `problem` says why.
std::optional<Recording> read_recording(std::span<const uint8_t> file, std::string& problem);

}  // namespace cistern::alloc::tool
