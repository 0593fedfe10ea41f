// SPDX-License-Identifier: Apache-2.0
// The problem that a plan solves: blocks with lifetimes get offsets, such that blocks that live at
// the same time share no byte, in as few bytes as possible (static dynamic storage allocation).
//
// Only which lifetimes overlap matters, so times become *sections*: the longest stretches of time
// in which blocks begin and then blocks end. Two blocks overlap exactly if they share a section,
// and the bytes live in the fullest section are the lower bound of every plan. Sizes are rounded up
// to the alignment, so that sums of sizes are aligned offsets.
//
// Owns its arrays; unchanged once it is built, so any thread may read it.
#pragma once

#include <cstdint>
#include <span>

#include "allocator/plan/array.h"

namespace cistern::alloc::plan {

struct Lifetime {
  uint64_t from = 0, to = 0;  // in any unit; lives before `to`, not at it
  uint64_t bytes = 0;
};

struct Block {
  uint64_t bytes = 0;
  uint32_t first = 0, last = 0;  // sections, both included

  bool overlaps(const Block& other) const { return first <= other.last && other.first <= last; }
};

enum class Built : uint8_t { yes, no_memory, too_many, bad_lifetime, too_many_bytes };
inline constexpr uint64_t kMostBlocks = uint64_t{1} << 30;
// Of all blocks together, so that no sum of the planner overflows.
inline constexpr uint64_t kMostBytes = uint64_t{1} << 62;

class Problem {
 public:
  // `alignment` is a power of two. A lifetime of no time or no bytes is a bad_lifetime.
  Built build(std::span<const Lifetime> lifetimes, uint64_t alignment);

  std::span<const Block> blocks() const { return blocks_.span(); }
  // Bytes live in each section.
  std::span<const uint64_t> live() const { return live_.span(); }
  uint64_t lower_bound() const { return lower_bound_; }
  // The same without the rounding to the alignment.
  uint64_t lower_bound_unaligned() const { return lower_bound_unaligned_; }
  // The number of pairs of blocks that overlap: what a packing has to look at.
  uint64_t overlaps() const { return overlaps_; }

 private:
  bool find_sections(std::span<const Lifetime> lifetimes);
  bool find_live(std::span<const Lifetime> lifetimes);

  Array<Block> blocks_;
  Array<uint64_t> live_;
  uint64_t lower_bound_ = 0, lower_bound_unaligned_ = 0, overlaps_ = 0;
  uint32_t sections_ = 0;
};

}  // namespace cistern::alloc::plan
