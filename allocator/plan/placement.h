// SPDX-License-Identifier: Apache-2.0
// The blocks that have offsets. Finds where another block fits. Time is divided into buckets of
// sections. Each bucket keeps the blocks that live in it, by offset; a block that lives in several
// buckets is in each. Buckets are so wide that a block is in about two. A search walks up in all
// buckets of a lifetime in turn, until they agree on an offset. So it gathers and sorts nothing,
// and ends at the first gap. The search for the cheapest place does the same, but skips blocks
// that, alone or together, cost more than the cheapest place so far.
//
// Owns the offsets. One thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "allocator/plan/array.h"
#include "allocator/plan/problem.h"

namespace cistern::alloc::plan {

class Placement {
 public:
  // The problem must outlive it. False without memory.
  bool make(const Problem& problem);

  // The lowest offset at which a block fits.
  uint64_t first_fit(uint32_t block) { return fit_from(block, 0); }
  // For a large block: first_fit(). A small block gets any place below `ceiling`: the search goes
  // on where the last one ended, and begins at 0 only if it finds none.
  uint64_t fit_below(uint32_t block, uint64_t ceiling);
  // The offset of the smallest gap that the block fits into; above all other blocks if there is no
  // such gap.
  uint64_t best_fit(uint32_t block);

  // A place for a block, and the total price of the blocks that are in its way.
  struct Place {
    uint64_t offset;
    double price;
    size_t in_the_way;
  };
  // The cheapest place below `ceiling`; of several, the lowest. If no place costs less than `limit`
  // > 0, the price is `limit`. Writes the blocks in the way to `in_the_way`, which has room for all
  // blocks that live with this one.
  Place cheapest_place(uint32_t block, uint64_t ceiling, double limit,
                       std::span<uint32_t> in_the_way);

  // `price`: what it costs to displace the block.
  void insert(uint32_t block, uint64_t offset, float price = 0);
  void remove(uint32_t block);
  void clear();
  // Sets only what offset() and offsets() return: searches do not see the block.
  void set_offset(uint32_t block, uint64_t offset) { offsets_[block] = offset; }

  uint64_t offset(uint32_t block) const { return offsets_[block]; }
  uint64_t end(uint32_t block) const { return offsets_[block] + blocks_[block].bytes; }
  std::span<const uint64_t> offsets() const { return offsets_.span(); }
  // Blocks looked at since the last call: what budgets count.
  uint64_t take_steps() { return std::exchange(steps_, 0); }
  uint64_t bytes() const;

 private:
  struct Entry {
    uint64_t offset, end;
    uint32_t first, last;  // sections
    uint32_t block;
    float price;
  };
  struct Bucket {
    uint64_t begin;  // index in entries_
    uint32_t size;
    uint32_t next;   // the search has looked at all entries before this one
    uint64_t small;  // where the last small block that begins here was placed
  };

  // A block in the way of the place that a search looks at.
  struct Taken {
    uint64_t end;
    float price;
    uint32_t block;
  };
  struct Sweep {
    uint64_t offset = 0;
    double price = 0;  // of the blocks in the way
    size_t taken = 0;
    float limit = 0;  // blocks with this price or more are not displaced
  };

  uint32_t bucket_of(uint32_t section) const { return section >> shift_; }
  bool advance(Bucket& bucket, const Block& block, uint64_t& cursor);
  void begin_search(const Block& block, uint64_t cursor);
  uint64_t fit_from(uint32_t block, uint64_t cursor);
  void search(const Block& block, uint64_t& cursor);
  uint64_t next_above(const Block& block);
  bool advance(uint32_t number, const Block& block, Sweep& sweep);
  void sweep_up(const Block& block, Sweep& sweep);
  void give_back_lowest(Sweep& sweep);

  std::span<const Block> blocks_;
  unsigned shift_ = 0;
  uint64_t steps_ = 0;
  uint64_t small_below_ = 0;  // blocks with fewer bytes are small
  uint64_t tallest_ = 0;      // bytes of the largest block since clear()
  Array<Bucket> buckets_;
  Array<Entry> entries_;
  Array<uint64_t> offsets_;
  Array<Taken> taken_;  // a heap
};

}  // namespace cistern::alloc::plan
