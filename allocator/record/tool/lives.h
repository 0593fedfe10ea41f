// SPDX-License-Identifier: Apache-2.0
// The blocks of a recording, from their allocation to their end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/record/tool/reader.h"

namespace cistern::alloc::tool {

inline constexpr size_t kNone = SIZE_MAX;

struct Block {
  size_t allocated;      // the event
  size_t ended = kNone;  // the event that ended it: its free, the end of its context, or the
                         // allocation of a block at its address where the free is missing
};

// Something happened to a block.
struct Step {
  size_t event;
  size_t block;
  bool begins;
};

struct Lives {
  std::vector<Block> blocks;
  std::vector<Step> steps;             // in the order of the events; ends before beginnings
  std::vector<size_t> block_of_event;  // of an allocation or a free; kNone where none is known
};

Lives lives_of(const Recording& recording);

}  // namespace cistern::alloc::tool
