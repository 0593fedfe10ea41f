// SPDX-License-Identifier: Apache-2.0
// Local search on a packing: moves a block that ends above a target to a random lower place, and
// places what was there again. A move stays if it leaves no more bytes above the target. It works
// at the peak only, so a move takes as long in a small problem as in a large one. Random, by a
// seed. One thread at a time.
#pragma once

#include <cstdint>

#include "allocator/plan/budget.h"
#include "allocator/plan/placement.h"
#include "allocator/plan/problem.h"

namespace cistern::alloc::plan {

class Improve {
 public:
  // `placement` holds all blocks of the problem; both must outlive it. False without memory.
  bool make(const Problem& problem, Placement& placement, uint64_t seed);

  // Until no block ends above `target` or the budget is spent. Returns the height.
  uint64_t run(uint64_t target, Budget& budget);

 private:
  static constexpr uint32_t kMostMoved = 512;

  struct Moved {
    uint64_t key;     // placed by falling keys
    uint64_t offset;  // before
    uint32_t block;
  };

  uint64_t random();
  uint64_t excess(uint32_t block, uint64_t target) const;
  uint32_t pick_high(uint64_t target, uint64_t& height);
  void take_out(uint32_t block, uint64_t height);
  void move(uint32_t block);
  bool place_again(uint64_t target, uint64_t height);
  uint64_t place_for(uint32_t move);
  void put_back();
  void note_high(uint64_t target);

  std::span<const Block> blocks_;
  Placement* placement_ = nullptr;
  uint64_t state_ = 0;
  Array<uint32_t> high_;  // those that end above the target, and some that did
  Array<char> is_high_;   // whether in high_
  size_t highs_ = 0;
  Moved moved_[kMostMoved];
  uint32_t moves_ = 0;
  uint64_t goal_ = 0;  // where the first one goes
};

}  // namespace cistern::alloc::plan
