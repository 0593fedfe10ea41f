// SPDX-License-Identifier: Apache-2.0
// Packs all blocks below a ceiling that is close to the lower bound. Blocks come in the order of a
// greedy packing, each to the lowest place that is free. A block that finds no free place below the
// ceiling takes the cheapest place of other blocks, which then look for places in their turn. A
// block costs more the harder it was to place (its bytes, its time, what is live then, and how
// often it displaced others), so blocks do not chase each other in circles. If this takes long, the
// ceiling rises a little.
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
  // Both must outlive it. `effort`: steps until the ceiling rises. False without memory.
  bool make(const Problem& problem, Placement& placement, uint64_t effort);

  // Leaves a packing below `limit` in the placement, if it can. Three quarters of the budget are
  // for searching; in the rest the ceiling rises as far as each block needs. Blocks that were
  // hard to place cost more in the next run, too.
  bool run(uint64_t ceiling, uint64_t limit, Budget& budget);

  uint64_t bytes() const;

 private:
  // A place that holds out as long as the search for a cheaper one goes up.
  struct Taken {
    uint64_t end;
    double price;
  };

  struct Place {
    uint64_t offset;
    double price;  // of the blocks that are there
  };

  bool place(uint32_t block);
  bool place_displaced(Budget& search, Budget& budget);
  uint32_t take_dearest();
  Place cheapest_place(uint32_t block, size_t neighbours);
  void displace(uint32_t block, Place place, size_t neighbours);
  bool raise(uint64_t ceiling);

  std::span<const Block> blocks_;
  Placement* placement_ = nullptr;
  uint64_t effort_ = 0, ceiling_ = 0, limit_ = 0;
  Array<uint32_t> order_;
  Array<double> weights_;  // by block: how hard to place
  Array<double> prices_;   // by block: its weight, as often as it displaced others and once more
  Array<uint32_t> displaced_;
  size_t displaced_count_ = 0;
  Array<Placement::Neighbour> neighbours_, merged_;
  Array<Taken> taken_;  // a heap
};

}  // namespace cistern::alloc::plan
