// SPDX-License-Identifier: Apache-2.0
// Exact search: do these blocks fit into a capacity, and where? Depth-first branch and bound over
// *canonical* solutions, after the MiniMalloc paper (Moffitt, 2023): every block rests on another
// or on offset 0, and blocks are placed by rising offset, those of one offset by rising number. So
// each solution is met once. What is cut off:
//
// - a section whose bytes still to be placed do not fit above the lowest offset that one of them
//   can have;
// - a placement that leaves room below it in which an unplaced block fits (it is dominated);
// - blocks that fall apart in time are searched one part after the other: one impossible part makes
//   the whole impossible.
//
// The order of the numbers decides how long it takes, so callers try several. Owns about 24 n²
// bytes, and touches only those it needs. One thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "allocator/plan/array.h"
#include "allocator/plan/budget.h"
#include "allocator/plan/problem.h"

namespace cistern::alloc::plan {

enum class Searched : uint8_t { solved, impossible, gave_up };

class Exact {
 public:
  static constexpr size_t kMostBlocks = 2048;

  // For up to kMostBlocks blocks in up to `sections` sections. False without memory.
  bool make(size_t blocks, size_t sections);

  // Blocks in the order of their numbers; their sections are below the number given to make(). The
  // budget is spent in looks at a block.
  Searched search(std::span<const Block> blocks, uint64_t capacity, Budget& budget);

  // After solved: of a block, by its place in what search() was given.
  uint64_t offset(size_t block) const { return offsets_[block]; }
  uint64_t bytes() const { return stack_.bytes(); }

 private:
  struct Open {       // a block that is not placed yet
    uint64_t height;  // what is placed below it ends here
    uint32_t block;

    bool operator<(const Open& other) const {
      return height != other.height ? height < other.height : block < other.block;
    }
  };
  // Where the search is: what was placed last, at the highest offset so far.
  struct Front {
    uint64_t offset;
    int64_t block;  // -1: nothing yet

    // Whether something unplaced can no longer be placed where it would rest now.
    bool passed(const Open& open) const {
      return open.height < offset || (open.height == offset && open.block <= block);
    }
  };
  struct Bounds {
    uint64_t lowest_top;  // no block placed from now on ends lower
    uint64_t room_below;  // a block placed at this offset or higher leaves room for one below
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
  Array<uint32_t> unfilled_;            // by section: a section from which on to look for one
  Array<uint32_t> part_of_;             // by section
  Array<Open> stack_;
  size_t used_ = 0;
};

}  // namespace cistern::alloc::plan
