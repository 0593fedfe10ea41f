// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/exact_parts.h"

#include <algorithm>
#include <numeric>

namespace cistern::alloc::plan {
namespace {

// Which blocks are numbered first in a search: those with the longest lifetime (W), the largest
// area (A), the most live around them (T), and what decides between equal ones.
constexpr const char* kOrders[] = {"WAT", "TAW", "TWA"};

constexpr uint64_t kFirstLimit = 1 << 21, kLastLimit = 1 << 24;  // steps

}  // namespace

bool ExactParts::make(const Problem& problem) {
  problem_ = &problem;
  blocks_ = problem.blocks();
  return by_first_.make(blocks_.size()) && find_parts();
}

uint64_t ExactParts::bytes() const {
  return by_first_.bytes() + pressure_.bytes() + parts_.bytes() + order_.bytes() +
         ordered_.bytes() + exact_.bytes();
}

bool ExactParts::find_parts() {
  for (uint32_t i = 0; i < blocks_.size(); ++i) by_first_[i] = i;
  std::sort(by_first_.begin(), by_first_.end(), [this](uint32_t a, uint32_t b) {
    return blocks_[a].first != blocks_[b].first ? blocks_[a].first < blocks_[b].first : a < b;
  });
  if (!parts_.make(blocks_.size())) return false;
  size_t longest = 0;
  uint32_t reached = 0;
  for (uint32_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[by_first_[i]];
    if (i == 0 || block.first > reached) {
      parts_[part_count_++] = {.begin = i, .end = i, .tried = false};
    }
    reached = std::max(reached, block.last);
    parts_[part_count_ - 1].end = i + 1;
  }
  for (Part& part : parts_.span().first(part_count_)) {
    const size_t size = part.end - part.begin;
    part.tried = size > Exact::kMostBlocks;
    if (!part.tried) longest = std::max(longest, size);
  }
  // Each section begins with a block, so a part has no more sections than blocks.
  return pressure_.make(blocks_.size()) && order_.make(longest) && ordered_.make(longest) &&
         exact_.make(longest, longest);
}

uint64_t ExactParts::height_of(const Part& part, std::span<const uint64_t> offsets) const {
  uint64_t height = 0;
  for (uint32_t i = part.begin; i < part.end; ++i) {
    const uint32_t block = by_first_[i];
    height = std::max(height, offsets[block] + blocks_[block].bytes);
  }
  return height;
}

bool ExactParts::improve_highest(std::span<uint64_t> offsets, Budget& budget) {
  Part* highest = nullptr;
  uint64_t height = 0;
  for (Part& part : parts_.span().first(part_count_)) {
    const uint64_t one = height_of(part, offsets);
    if (one <= height) continue;
    highest = &part;
    height = one;
  }
  if (highest == nullptr || highest->tried || height <= problem_->lower_bound()) return false;
  highest->tried = true;
  return lower(*highest, offsets, budget);
}

bool ExactParts::lower(const Part& part, std::span<uint64_t> offsets, Budget& budget) {
  // Every offset of a canonical solution is a multiple of the unit. No block is without bytes.
  uint64_t unit = 0;
  for (uint32_t i = part.begin; i < part.end; ++i) {
    const Block& block = blocks_[by_first_[i]];
    unit = std::gcd(unit, block.bytes);
    const auto live = problem_->live().subspan(block.first, block.last - block.first + 1);
    pressure_[by_first_[i]] = *std::max_element(live.begin(), live.end());
  }
  unit = std::max<uint64_t>(unit, 1);
  const uint64_t before = height_of(part, offsets);
  // No capacity up to `missed` was enough, as far as the search went.
  uint64_t best = before, missed = problem_->lower_bound() / unit * unit;
  const auto attempt = [&](uint64_t capacity, uint64_t limit, Budget& share) {
    const Searched searched = search(part, capacity, limit, share);
    if (searched == Searched::solved) {
      take(part, offsets);
      best = height_of(part, offsets);
    }
    return searched;
  };
  Searched at_bound = Searched::gave_up;
  Budget share = budget.eighths(4);
  for (uint64_t limit = kFirstLimit; at_bound == Searched::gave_up && !share.over(); limit *= 2) {
    at_bound = attempt(problem_->lower_bound(), limit, share);
  }
  budget.spend(share.spent());
  if (at_bound == Searched::solved) return true;
  while (best - missed > unit && !budget.over()) {
    const uint64_t capacity = missed + (best - missed) / unit / 2 * unit;
    if (attempt(capacity, kLastLimit, budget) != Searched::solved) missed = capacity;
  }
  return best < before;
}

// In all orders.
Searched ExactParts::search(const Part& part, uint64_t capacity, uint64_t limit, Budget& budget) {
  Searched searched = Searched::gave_up;
  for (const char* keys : kOrders) {
    order_blocks(part, keys);
    Budget share = budget.at_most(limit);
    const size_t size = part.end - part.begin;
    searched = exact_.search(ordered_.span().first(size), capacity, share);
    budget.spend(share.spent());
    if (searched != Searched::gave_up || budget.over()) break;
  }
  return searched;
}

uint64_t ExactParts::key_of(uint32_t block, char key) const {
  const uint64_t length = blocks_[block].last - blocks_[block].first + 1;
  if (key == 'W') return length;
  return key == 'T' ? pressure_[block] : length * blocks_[block].bytes;
}

void ExactParts::order_blocks(const Part& part, const char* keys) {
  const auto order = order_.span().first(part.end - part.begin);
  std::copy(by_first_.begin() + part.begin, by_first_.begin() + part.end, order.begin());
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    for (const char* key = keys; *key != '\0'; ++key) {
      const uint64_t one = key_of(a, *key), other = key_of(b, *key);
      if (one != other) return one > other;
    }
    return a < b;
  });
  const uint32_t start = blocks_[by_first_[part.begin]].first;
  for (size_t i = 0; i < order.size(); ++i) {
    const Block& block = blocks_[order[i]];
    ordered_[i] = {.bytes = block.bytes, .first = block.first - start, .last = block.last - start};
  }
}

void ExactParts::take(const Part& part, std::span<uint64_t> offsets) const {
  for (uint32_t i = 0; i < part.end - part.begin; ++i) offsets[order_[i]] = exact_.offset(i);
}

}  // namespace cistern::alloc::plan
