// SPDX-License-Identifier: Apache-2.0
// Blocks that have offsets. It finds where another block fits. Time is cut into buckets of
// sections. Each bucket keeps the blocks that live in it, by offset; a block that lives in several
// is in each. Buckets are so wide that a block is in about two. A search walks up in all buckets of
// a lifetime in turn, until they agree on an offset: nothing is gathered or sorted for it, and it
// ends at the first gap.
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
  // The same from an offset on.
  uint64_t fit_from(uint32_t block, uint64_t cursor);
  // In the smallest gap that it fits into; above all others where there is no gap.
  uint64_t best_fit(uint32_t block);

  // Up to out.size() of the blocks that live with a block and have bytes in [offset, end): some may
  // be there twice. Returns how many.
  size_t in_the_way(uint32_t block, uint64_t offset, uint64_t end, std::span<uint32_t> out);

  // One that lives with a block, and has its place.
  struct Neighbour {
    uint64_t offset, end;
    uint32_t block;
  };
  // Those of a block, by offset. Returns how many, or, where that is not less than fits into `out`,
  // a number above that. `other` is as large as `out`, and has nothing of use afterwards.
  size_t neighbours(uint32_t block, Array<Neighbour>& out, Array<Neighbour>& other);

  void insert(uint32_t block, uint64_t offset);
  void remove(uint32_t block);
  void clear();
  // Only for offset() and offsets(): searches do not see the block.
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
  };
  struct Bucket {
    uint64_t begin;  // in entries_
    uint32_t size;
    uint32_t next;  // of a search: entries before it have been looked at
  };

  uint32_t bucket_of(uint32_t section) const { return section >> shift_; }
  static void merge(std::span<const Neighbour> one, std::span<const Neighbour> other,
                    Neighbour* out);
  bool advance(Bucket& bucket, const Block& block, uint64_t& cursor);
  void begin_search(const Block& block);
  void search(const Block& block, uint64_t& cursor);
  uint64_t next_above(const Block& block);

  std::span<const Block> blocks_;
  unsigned shift_ = 0;
  uint64_t steps_ = 0;
  Array<Bucket> buckets_;
  Array<Entry> entries_;
  Array<uint64_t> offsets_;
};

}  // namespace cistern::alloc::plan
