// SPDX-License-Identifier: Apache-2.0
// The blocks of a recording, from their allocation to their end, and its chunks in the same way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "allocator/record/tool/reader.h"

namespace cistern::alloc::tool {

// A hash table from 64-bit keys of a recording, such as addresses and handles, to 32-bit numbers.
// It stores only the numbers, in 4 to 16 bytes each; the caller provides the key of a number. A
// forged recording could have keys that all collide, so the hash depends on a random secret of each
// run. One thread.
inline constexpr uint32_t kNone = UINT32_MAX;

class IndexTable {
 public:
  // The number with this key, or kNone. `key_of(number)`: the key of a number in the table.
  template <typename KeyOf>
  uint32_t find(uint64_t key, KeyOf key_of) const {
    return slots_.empty() ? kNone : slots_[place_of(key, key_of)];
  }

  // Adds a number, in place of the one with the same key if there is one.
  template <typename KeyOf>
  void put(uint32_t number, KeyOf key_of) {
    if (slots_.size() * 3 <= (count_ + 1) * 4) grow(key_of);
    uint32_t& slot = slots_[place_of(key_of(number), key_of)];
    count_ += slot == kNone;
    slot = number;
  }

  // Removes the number with this key. Later entries move up, so no search stops early.
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

  // The slot where the key is, or would be.
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
  uint32_t ended = kNone;  // the event that ended it: its free, the end of its context, or, if its
                           // free is missing, the next allocation at its address
};

// The beginning or the end of a block.
struct Step {
  uint32_t event;
  uint32_t block;
};

struct Lives {
  std::deque<Block> blocks;
  std::deque<Step> steps;               // in the order of the events; ends before beginnings
  std::deque<uint32_t> block_of_event;  // for an allocation or a free; kNone if not known

  bool begins(const Step& step) const { return blocks[step.block].allocated == step.event; }
};

Lives lives_of(const Recording& recording);
// The same for chunks, from obtained to released.
Lives chunks_of(const Recording& recording);

// Finds the automatic phases of a program without markers and chosen ranges
// (allocator/record/phases.h). Its recording has no phases, because the recorder does not know how
// large a freed block was.

// Gives every event its phase, unless the recording has phases of its own or the program never
// waited for its work.
void find_phases(Recording& recording);

}  // namespace cistern::alloc::tool
