// SPDX-License-Identifier: Apache-2.0
// Packings: whole plans that are made block by block. Greedy ones take the blocks in one of several
// orders, others move blocks out of the way below a ceiling. Both find places in a Placement. One
// thread at a time. Nothing in it is random.
#pragma once

#include <cstdint>
#include <span>

#include "allocator/plan/problem.h"

namespace cistern::alloc::plan {

// The blocks that have offsets. Finds where another block fits. Time is divided into buckets of
// sections. Each bucket keeps the blocks that live in it, by offset; a block that lives in several
// buckets is in each. Buckets are so wide that a block is in about two. A search walks up in all
// buckets of a lifetime in turn, until they agree on an offset. So it gathers and sorts nothing,
// and ends at the first gap. The search for the cheapest place does the same, but skips blocks
// that, alone or together, cost more than the cheapest place so far. Owns the offsets.
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

// Greedy packings: the blocks are placed in one of several orders, each at the lowest offset or in
// the smallest gap where it fits. The best order differs from program to program, so the planner
// tries all. Once the budget is spent, the remaining blocks go on top, in O(log n) each, so a
// packing is always complete.

// Every order but birth begins with the largest value.
enum class Order : uint8_t {
  bytes,
  area,      // bytes × sections
  length,    // sections
  birth,     // the earliest first
  moderate,  // bytes × fourth root of the sections
  pressure,  // bytes × root of the sections, and more where much is live
  peak,      // bytes × sections; a section with more live counts more
};
enum class Fit : uint8_t { first, best };

struct Packing {
  Order order;
  Fit fit;
  const char* name;
};

// In the order in which they are worth trying.
inline constexpr Packing kPackings[] = {
    {Order::pressure, Fit::first, "by pressure, first fit"},
    {Order::bytes, Fit::first, "by size, first fit"},
    {Order::moderate, Fit::first, "by size and time, first fit"},
    {Order::birth, Fit::best, "by time, best fit"},
    {Order::area, Fit::first, "by area, first fit"},
    {Order::length, Fit::best, "by lifetime, best fit"},
    {Order::bytes, Fit::best, "by size, best fit"},
    {Order::area, Fit::best, "by area, best fit"},
    {Order::birth, Fit::first, "by time, first fit"},
    {Order::length, Fit::first, "by lifetime, first fit"},
};

// Fills `placement`, which was made for the problem. With Fit::first a small block gets any place
// below the highest end so far. False without memory.
bool pack(const Problem& problem, const Packing& packing, Placement& placement, Budget& budget);

// Where the highest block ends.
uint64_t height_of(std::span<const Block> blocks, std::span<const uint64_t> offsets);

// Packs all blocks below a ceiling that is close to the lower bound. Blocks come in the order
// of a greedy packing, each to a place that is free. A block that finds no free place below the
// ceiling takes the cheapest place from other blocks, which then look for new places. The price of
// a block grows with how hard it is to place: its bytes, its time, the bytes live then, and how
// often it displaced others. So blocks do not chase each other in circles. If a search takes more
// than its share of the remaining budget, the ceiling rises a little, but no more than a single
// block needs. So every run ends, and uses the time that it has.
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
