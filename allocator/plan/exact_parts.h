// SPDX-License-Identifier: Apache-2.0
// Exact search in a whole plan, on one part at a time, the highest part first. Lifetimes of
// different parts do not overlap, so parts are independent. The searches begin at the lower bound,
// in several orders of the blocks and with growing limits. Later ones bisect between capacities
// known to be impossible and possible. Parts with more than Exact::kMostBlocks blocks are left
// alone. One thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "allocator/plan/array.h"
#include "allocator/plan/budget.h"
#include "allocator/plan/exact.h"
#include "allocator/plan/problem.h"

namespace cistern::alloc::plan {

class ExactParts {
 public:
  // The problem must outlive it. False without memory.
  bool make(const Problem& problem);

  // Lowers the highest part of a whole plan. False if that part is too large or already at the
  // lower bound, or if the search found nothing: then another call is pointless.
  bool improve_highest(std::span<uint64_t> offsets, Budget& budget);

  uint64_t bytes() const;

 private:
  struct Part {
    uint32_t begin, end;  // indices in by_first_
    bool tried;
  };

  bool find_parts();
  uint64_t height_of(const Part& part, std::span<const uint64_t> offsets) const;
  bool lower(const Part& part, std::span<uint64_t> offsets, Budget& budget);
  void order_blocks(const Part& part, const char* keys);
  Searched search(const Part& part, uint64_t capacity, uint64_t limit, Budget& budget);
  void take(const Part& part, std::span<uint64_t> offsets) const;
  uint64_t key_of(uint32_t block, char key) const;

  const Problem* problem_ = nullptr;
  std::span<const Block> blocks_;
  Array<uint32_t> by_first_;
  Array<uint64_t> pressure_;  // by block: the most bytes live in one of its sections
  Array<Part> parts_;
  size_t part_count_ = 0;
  Array<uint32_t> order_;  // a part's blocks in the order of the search
  Array<Block> ordered_;   // the same blocks, with sections counted from 0
  Exact exact_;
};

}  // namespace cistern::alloc::plan
