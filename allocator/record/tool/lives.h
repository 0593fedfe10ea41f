// SPDX-License-Identifier: Apache-2.0
// The blocks of a recording, from their allocation to their end, and its chunks likewise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "allocator/record/tool/reader.h"

namespace cistern::alloc::tool {

// Finds things by a 64-bit key that comes from a recording: an address, a handle. A thing is a
// number, whose key the user knows; the table has 4 to 16 bytes for each. Whoever made the
// recording chose the keys and could have them all meet in one place, so where a key goes depends
// on a number that each run draws anew. One thread.
inline constexpr uint32_t kNone = UINT32_MAX;

class IndexTable {
 public:
  // The number with this key, or kNone. `key_of(number)`: of those in the table.
  template <typename KeyOf>
  uint32_t find(uint64_t key, KeyOf key_of) const {
    return slots_.empty() ? kNone : slots_[place_of(key, key_of)];
  }

  // In place of the one with its key, if there is one.
  template <typename KeyOf>
  void put(uint32_t number, KeyOf key_of) {
    if (slots_.size() * 3 <= (count_ + 1) * 4) grow(key_of);
    uint32_t& slot = slots_[place_of(key_of(number), key_of)];
    count_ += slot == kNone;
    slot = number;
  }

  // What follows it moves up, so that no search stops early.
  template <typename KeyOf>
  void remove(uint64_t key, KeyOf key_of) {
    if (find(key, key_of) == kNone) return;
    const size_t mask = slots_.size() - 1;
    size_t hole = place_of(key, key_of);
    for (size_t at = (hole + 1) & mask; slots_[at] != kNone; at = (at + 1) & mask) {
      const size_t wanted = first_place(key_of(slots_[at]));
      if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = kNone;
    --count_;
  }

 private:
  size_t first_place(uint64_t key) const {
    static const uint64_t secret = std::random_device{}() | uint64_t{std::random_device{}()} << 32;
    key ^= secret;
    for (const uint64_t factor : {0xFF51AFD7ED558CCDu, 0xC4CEB9FE1A85EC53u}) {
      key = (key ^ key >> 33) * (factor + (secret << 1));  // odd: no two keys become one
    }
    return (key ^ key >> 33) & (slots_.size() - 1);
  }

  // Where it is, or where it would be.
  template <typename KeyOf>
  size_t place_of(uint64_t key, KeyOf key_of) const {
    size_t at = first_place(key);
    while (slots_[at] != kNone && key_of(slots_[at]) != key) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  template <typename KeyOf>
  void grow(KeyOf key_of) {
    const std::vector<uint32_t> old = std::move(slots_);
    slots_.assign(old.empty() ? 16 : 2 * old.size(), kNone);
    for (const uint32_t number : old) {
      if (number != kNone) slots_[place_of(key_of(number), key_of)] = number;
    }
  }

  std::vector<uint32_t> slots_;  // a power of 2, a quarter of them free
  size_t count_ = 0;
};

struct Block {
  uint32_t allocated;      // the event
  uint32_t ended = kNone;  // the event that ended it: its free, the end of its context, or the
                           // allocation of a block at its address where the free is missing
};

// Something happened to a block.
struct Step {
  uint32_t event;
  uint32_t block;
};

struct Lives {
  std::deque<Block> blocks;
  std::deque<Step> steps;               // in the order of the events; ends before beginnings
  std::deque<uint32_t> block_of_event;  // of an allocation or a free; kNone where none is known

  bool begins(const Step& step) const { return blocks[step.block].allocated == step.event; }
};

Lives lives_of(const Recording& recording);
// Of chunks, from obtained to released.
Lives chunks_of(const Recording& recording);

// Phases of a program that has no markers and names no ranges (allocator/record/phases.h). Its
// recording has none of them, since whoever records does not know how large a freed block was.

// Gives every event its phase, unless the recording has phases of its own or the program never
// waited for its work.
void find_phases(Recording& recording);

}  // namespace cistern::alloc::tool
