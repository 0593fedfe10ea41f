// SPDX-License-Identifier: Apache-2.0
// The blocks of a recording, from their allocation to their end, and its chunks likewise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "allocator/record/tool/index_table.h"
#include "allocator/record/tool/reader.h"

namespace cistern::alloc::tool {

struct Block {
  uint32_t allocated;      // the event
  uint32_t ended = kNone;  // the event that ended it: its free, the end of its context, or the
                           // allocation of a block at its address where the free is missing
};

// Something happened to a block.
struct Step {
  uint32_t event;
  uint32_t block;
};

struct Lives {
  std::deque<Block> blocks;
  std::deque<Step> steps;               // in the order of the events; ends before beginnings
  std::deque<uint32_t> block_of_event;  // of an allocation or a free; kNone where none is known

  bool begins(const Step& step) const { return blocks[step.block].allocated == step.event; }
};

Lives lives_of(const Recording& recording);
// Of chunks, from obtained to released.
Lives chunks_of(const Recording& recording);

}  // namespace cistern::alloc::tool
