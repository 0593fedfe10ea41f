// SPDX-License-Identifier: Apache-2.0
// Lifetimes for the tests of plans, and what says of a plan whether it is right. The check knows
// nothing of the planner: it takes lifetimes and offsets.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "allocator/plan/problem.h"

namespace cistern::alloc::plan::test {

// "" if no two blocks share a byte while both live, all offsets are aligned, and `bytes` is where
// the last block ends, up to the alignment.
inline std::string wrong_with(const std::vector<Lifetime>& lives,
                              const std::vector<uint64_t>& offsets, uint64_t bytes,
                              uint64_t alignment) {
  struct Change {
    uint64_t time;
    bool begins;
    size_t block;
    auto operator<=>(const Change&) const = default;
  };
  if (offsets.size() != lives.size()) return "not an offset for each block";
  uint64_t highest = 0;
  std::vector<Change> changes;
  for (size_t i = 0; i < lives.size(); ++i) {
    if (offsets[i] % alignment != 0) return "block " + std::to_string(i) + " is not aligned";
    highest = std::max(highest, offsets[i] + lives[i].bytes);
    changes.push_back({lives[i].from, true, i});
    changes.push_back({lives[i].to, false, i});
  }
  if ((highest + alignment - 1) / alignment * alignment != bytes) return "other bytes than it says";
  std::sort(changes.begin(), changes.end());
  std::map<uint64_t, uint64_t> live;  // offset to end
  for (const Change& change : changes) {
    const uint64_t offset = offsets[change.block], end = offset + lives[change.block].bytes;
    if (!change.begins) {
      live.erase(offset);
      continue;
    }
    const auto above = live.lower_bound(offset);
    const bool below_reaches = above != live.begin() && std::prev(above)->second > offset;
    if (below_reaches || (above != live.end() && above->first < end)) {
      return "block " + std::to_string(change.block) + " has bytes of another one";
    }
    live.emplace(offset, end);
  }
  return "";
}

inline std::vector<Lifetime> random_lives(uint64_t seed, size_t count, uint64_t times,
                                          uint64_t most_bytes) {
  std::mt19937_64 random(seed);
  std::vector<Lifetime> lives(count);
  for (Lifetime& life : lives) {
    life.from = random() % times;
    life.to = life.from + 1 + random() % times;
    life.bytes = 1 + random() % most_bytes;
  }
  return lives;
}

// Cuts a rectangle of time and bytes at random until there are `count` blocks: they fill it, so the
// least bytes are its height.
inline std::vector<Lifetime> cut_lives(uint64_t seed, size_t count, uint64_t times,
                                       uint64_t bytes) {
  std::mt19937_64 random(seed);
  std::vector<Lifetime> lives = {{.from = 0, .to = times, .bytes = bytes}};
  while (lives.size() < count) {
    Lifetime& cut = lives[random() % lives.size()];
    Lifetime rest = cut;
    if (random() % 2 == 0 && cut.to - cut.from > 1) {
      cut.to = rest.from = cut.from + 1 + random() % (cut.to - cut.from - 1);
    } else if (cut.bytes > 1) {
      cut.bytes = 1 + random() % (cut.bytes - 1);
      rest.bytes -= cut.bytes;
    } else {
      continue;
    }
    lives.push_back(rest);
  }
  return lives;
}

// At most 6 bytes live at a time, but 7 is the least that a plan can take.
inline std::vector<Lifetime> above_bound() {
  return {{0, 2, 3}, {0, 3, 3}, {4, 7, 3}, {2, 6, 1}, {6, 8, 3},
          {2, 4, 2}, {7, 8, 3}, {3, 6, 2}, {3, 4, 1}};
}

// The least bytes there can be, for a few blocks: in some order of the blocks, each at the lowest
// offset that is free, there is a best plan.
inline uint64_t least_bytes(const std::vector<Lifetime>& lives) {
  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), size_t{0});
  uint64_t least = UINT64_MAX;
  do {
    std::vector<uint64_t> offsets(lives.size());
    uint64_t highest = 0;
    for (size_t n = 0; n < order.size(); ++n) {
      const Lifetime& life = lives[order[n]];
      uint64_t& offset = offsets[order[n]];
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t placed = 0; placed < n; ++placed) {
          const Lifetime& other = lives[order[placed]];
          const uint64_t at = offsets[order[placed]];
          const bool live_together = life.from < other.to && other.from < life.to;
          if (!live_together || offset >= at + other.bytes || at >= offset + life.bytes) continue;
          offset = at + other.bytes;
          moved = true;
        }
      }
      highest = std::max(highest, offset + life.bytes);
    }
    least = std::min(least, highest);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

}  // namespace cistern::alloc::plan::test
