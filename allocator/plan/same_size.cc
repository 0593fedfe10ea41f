// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/same_size.h"

#include <algorithm>

namespace cistern::alloc::plan {
namespace {

// A place and the last section of the block that had it last.
struct Place {
  uint32_t last;
  uint64_t offset;

  // For a heap with the place on top that is free first, and of several the lowest.
  bool operator<(const Place& other) const {
    return last != other.last ? last > other.last : offset > other.offset;
  }
};

}  // namespace

bool plan_same_size(const Problem& problem, std::span<const Lifetime> lifetimes, Planned& out) {
  const std::span<const Block> blocks = problem.blocks();
  Array<uint32_t> order;
  Array<Place> places;  // of one size, a heap
  if (!order.make(blocks.size()) || !places.make(blocks.size()) ||
      !out.offsets.make(blocks.size())) {
    return false;
  }
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (lifetimes[a].bytes != lifetimes[b].bytes) return lifetimes[a].bytes > lifetimes[b].bytes;
    return blocks[a].first != blocks[b].first ? blocks[a].first < blocks[b].first : a < b;
  });
  out.bytes = 0;
  Place* end = places.begin();
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t block = order[i];
    if (i != 0 && lifetimes[block].bytes != lifetimes[order[i - 1]].bytes) end = places.begin();
    if (end != places.begin() && places[0].last < blocks[block].first) {
      std::pop_heap(places.begin(), end);
    } else {
      *end++ = {.last = 0, .offset = out.bytes};
      out.bytes += blocks[block].bytes;
    }
    (end - 1)->last = blocks[block].last;
    out.offsets[block] = (end - 1)->offset;
    std::push_heap(places.begin(), end);
  }
  out.winner = "same sizes (level 0)";
  out.memory_bytes = blocks.size() * sizeof(Block) + problem.live().size() * sizeof(uint64_t) +
                     order.bytes() + places.bytes() + out.offsets.bytes();
  return true;
}

}  // namespace cistern::alloc::plan
