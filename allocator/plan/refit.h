// SPDX-License-Identifier: Apache-2.0
// Packs all blocks below a ceiling that is close to the lower bound. Blocks come in the order of a
// greedy packing, each to a place that is free. A block that finds no free place below the ceiling
// takes the cheapest place from other blocks, which then look for new places. The price of a block
// grows with how hard it is to place: its bytes, its time, the bytes live then, and how often it
// displaced others. So blocks do not chase each other in circles. If a search takes more than its
// share of the remaining budget, the ceiling rises a little, but no more than a single block needs.
// So every run ends, and uses the time that it has.
//
// One thread at a time. Nothing in it is random.
#pragma once

#include <cstdint>

#include "allocator/plan/budget.h"
#include "allocator/plan/placement.h"
#include "allocator/plan/problem.h"

namespace cistern::alloc::plan {

class Refit {
 public:
  // `problem` and `placement` must outlive the object. False without memory.
  bool make(const Problem& problem, Placement& placement);

  // Leaves a packing below `limit` in the placement; false if it finds none. The budget must be
  // finite. Seven eighths of it are for searching; in the rest the ceiling rises as far as each
  // block needs. Blocks that were hard to place also cost more in the next run.
  bool run(uint64_t ceiling, uint64_t limit, Budget& budget);

  uint64_t bytes() const;

 private:
  bool place(uint32_t block);
  bool place_displaced(Budget& search, Budget& budget);
  bool place_dearest(bool displaces);
  uint64_t whole_rise() const;
  uint64_t needed_rise();
  uint32_t take_dearest();
  void displace(uint32_t block);
  bool raise(uint64_t ceiling);

  std::span<const Block> blocks_;
  Placement* placement_ = nullptr;
  uint64_t bound_ = 0, ceiling_ = 0, limit_ = 0;
  Array<uint32_t> order_;
  Array<double> weights_;  // by block: how hard to place
  Array<double> prices_;   // by block: its weight times (1 + how often it displaced others)
  Array<uint32_t> displaced_;
  size_t displaced_count_ = 0;
};

}  // namespace cistern::alloc::plan
