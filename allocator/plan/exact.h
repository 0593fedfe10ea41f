// SPDX-License-Identifier: Apache-2.0
// Exact search: do these blocks fit into a capacity, and where? Depth-first branch and bound over
// *canonical* solutions, after the MiniMalloc paper (Moffitt, 2023): every block rests on another
// or on offset 0, and blocks are placed by rising offset, those of one offset by rising number. So
// each solution is met once. Three rules save time:
//
// - a state is cut off if in some section the bytes still to be placed do not fit above the lowest
//   offset that one of them can have;
// - a placement is cut off if it leaves room below it in which an unplaced block fits (it is
//   dominated);
// - blocks that do not overlap in time form parts, which are searched one after the other: if one
//   part is impossible, so is the whole.
//
// The order of the blocks decides how long it takes, so callers try several orders. One thread at a
// time.
#pragma once

#include <cstdint>
#include <span>

#include "allocator/plan/problem.h"

namespace cistern::alloc::plan {

enum class Searched : uint8_t { solved, impossible, gave_up };

// Owns about 24 n² bytes for n blocks, and touches only those it needs.
class Exact {
 public:
  static constexpr size_t kMostBlocks = 2048;

  // For up to kMostBlocks blocks in up to `sections` sections. False without memory.
  bool make(size_t blocks, size_t sections);

  // Searches for offsets below `capacity`. A block's number is its place in `blocks`; its sections
  // are below the number given to make(). A step of the budget is one look at a block.
  Searched search(std::span<const Block> blocks, uint64_t capacity, Budget& budget);

  // After Searched::solved: the offset of blocks[block].
  uint64_t offset(size_t block) const { return offsets_[block]; }
  uint64_t bytes() const { return stack_.bytes(); }

 private:
  struct Open {       // a block that is not placed yet
    uint64_t height;  // the end of the highest placed block below it
    uint32_t block;

    bool operator<(const Open& other) const {
      return height != other.height ? height < other.height : block < other.block;
    }
  };
  // The block that was placed last, which has the highest offset so far.
  struct Front {
    uint64_t offset;
    int64_t block;  // -1: nothing yet

    // Whether an unplaced block can no longer be placed where it would rest now.
    bool passed(const Open& open) const {
      return open.height < offset || (open.height == offset && open.block <= block);
    }
  };
  struct Bounds {
    uint64_t lowest_top;  // every block placed from now on ends here or higher
    uint64_t room_below;  // a block placed here or higher leaves room for another one below it
  };

  Searched solve(std::span<const Open> open, Front front);
  Searched place_each(std::span<const Open> open, Front front);
  Searched solve_parts(std::span<const Open> open, Front front, size_t parts);
  bool is_same_as(const Open& open, const Open& tried) const;
  bool find_bounds(std::span<const Open> open, Front front, Bounds& out) const;
  bool sections_have_room(std::span<const Open> open, Front front, uint64_t lowest_top);
  bool fill(const Open& open, uint64_t offset);
  size_t count_parts(std::span<const Open> open);
  std::span<Open> push_without(std::span<const Open> open, const Open& placed, uint64_t top);
  void change_unplaced(const Block& block, uint64_t difference);
  uint32_t unfilled_from(uint32_t section);

  std::span<const Block> blocks_;
  uint64_t capacity_ = 0;
  Budget* budget_ = nullptr;
  Array<uint64_t> offsets_, unplaced_;  // unplaced_: bytes, by section
  Array<uint32_t> unfilled_;            // by section: where to look for the next unfilled one
  Array<uint32_t> part_of_;             // by section
  Array<Open> stack_;
  size_t used_ = 0;
};

// The search in a whole plan, on one part at a time, the highest part first. Lifetimes of different
// parts do not overlap, so parts are independent. The searches begin at the lower bound, in several
// orders of the blocks and with growing limits. Later ones bisect between capacities known to be
// impossible and possible. Parts with more than Exact::kMostBlocks blocks are left alone.
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
