// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/exact.h"

#include <algorithm>
#include <numeric>

namespace cistern::alloc::plan {

bool Exact::make(size_t blocks, size_t sections) {
  // One list of open blocks for each depth, and a copy of twice its length where it falls into
  // parts.
  return blocks <= kMostBlocks && offsets_.make(blocks) && unplaced_.make(sections) &&
         unfilled_.make(sections + 1) && part_of_.make(sections + 1) &&
         stack_.make(3 * (blocks + 2) * (blocks + 2) / 2 + blocks);
}

Searched Exact::search(std::span<const Block> blocks, uint64_t capacity, Budget& budget) {
  blocks_ = blocks;
  capacity_ = capacity;
  budget_ = &budget;
  std::fill(unplaced_.begin(), unplaced_.end(), 0);
  for (const Block& block : blocks) change_unplaced(block, block.bytes);
  for (uint32_t i = 0; i < blocks.size(); ++i) stack_[i] = {.height = 0, .block = i};
  used_ = blocks.size();
  return solve(stack_.span().first(blocks.size()), {.offset = 0, .block = -1});
}

// `open` is sorted, and lies at the end of the stack.
Searched Exact::solve(std::span<const Open> open, Front front) {
  if (open.empty()) return Searched::solved;
  if (!budget_->spend(open.size())) return Searched::gave_up;
  const size_t parts = count_parts(open);
  return parts > 1 ? solve_parts(open, front, parts) : place_each(open, front);
}

Searched Exact::place_each(std::span<const Open> open, Front front) {
  Bounds bounds;
  if (!find_bounds(open, front, bounds) || !sections_have_room(open, front, bounds.lowest_top)) {
    return Searched::impossible;
  }
  const Open* tried = nullptr;
  for (const Open& next : open) {
    if (next.height >= bounds.room_below) break;
    if (front.passed(next) || (tried != nullptr && is_same_as(next, *tried))) continue;
    tried = &next;
    const Block& block = blocks_[next.block];
    const size_t used_before = used_;
    offsets_[next.block] = next.height;
    change_unplaced(block, -block.bytes);
    const Searched searched = solve(push_without(open, next, next.height + block.bytes),
                                    {.offset = next.height, .block = next.block});
    if (searched != Searched::impossible) return searched;
    change_unplaced(block, block.bytes);
    used_ = used_before;
  }
  return Searched::impossible;
}

// Parts have been numbered by count_parts(). Their numbers are gone once one is searched, so all
// are copied before, each behind an entry that says how many blocks it has.
Searched Exact::solve_parts(std::span<const Open> open, Front front, size_t parts) {
  const size_t used_before = used_;
  Open* at = stack_.begin() + used_;
  for (uint32_t part = 0; part < parts; ++part) {
    Open* const head = at++;
    for (const Open& one : open) {
      if (part_of_[blocks_[one.block].first] == part) *at++ = one;
    }
    *head = {.height = 0, .block = static_cast<uint32_t>(at - head - 1)};
  }
  used_ = static_cast<size_t>(at - stack_.begin());
  const size_t used_by_copies = used_;
  Searched searched = Searched::solved;
  const Open* head = stack_.begin() + used_before;
  for (; head != at && searched == Searched::solved; head += 1 + head->block) {
    searched = solve({head + 1, head->block}, front);
    used_ = used_by_copies;
  }
  if (searched != Searched::impossible) return searched;
  // Parts that were solved before have taken their bytes off the sections.
  for (const Open* solved = stack_.begin() + used_before; solved + 1 + solved->block != head;
       solved += 1 + solved->block) {
    for (uint32_t i = 1; i <= solved->block; ++i) {
      const Block& block = blocks_[solved[i].block];
      change_unplaced(block, block.bytes);
    }
  }
  used_ = used_before;
  return searched;
}

// With the same lifetime and size, in each other's place: what failed with one fails with the
// other.
bool Exact::is_same_as(const Open& open, const Open& tried) const {
  const Block &one = blocks_[open.block], &other = blocks_[tried.block];
  return open.height == tried.height && one.first == other.first && one.last == other.last &&
         one.bytes == other.bytes;
}

// False if nothing can be placed any more.
bool Exact::find_bounds(std::span<const Open> open, Front front, Bounds& out) const {
  out = {.lowest_top = UINT64_MAX, .room_below = UINT64_MAX};
  for (const Open& one : open) {
    const uint64_t top = one.height + blocks_[one.block].bytes;
    out.room_below = std::min(out.room_below, top);
    if (!front.passed(one)) out.lowest_top = std::min(out.lowest_top, top);
  }
  // At the front's own offset or above it a passed block had room below.
  return out.lowest_top != UINT64_MAX && out.room_below > front.offset;
}

// In each section the block that starts lowest tells from where on all of its unplaced bytes need
// room. A passed block starts where one that is placed later ends.
bool Exact::sections_have_room(std::span<const Open> open, Front front, uint64_t lowest_top) {
  for (uint32_t i = 0; i < unfilled_.size(); ++i) unfilled_[i] = i;
  size_t next = 0;
  for (; next < open.size() && open[next].height < lowest_top; ++next) {
    if (!front.passed(open[next]) && !fill(open[next], open[next].height)) return false;
  }
  for (const Open& one : open.first(next)) {
    if (front.passed(one) && !fill(one, lowest_top)) return false;
  }
  for (; next < open.size(); ++next) {
    if (!fill(open[next], open[next].height)) return false;
  }
  return true;
}

bool Exact::fill(const Open& open, uint64_t offset) {
  const Block& block = blocks_[open.block];
  for (uint32_t section = unfilled_from(block.first); section <= block.last;
       section = unfilled_from(section)) {
    if (offset + unplaced_[section] > capacity_) return false;
    unfilled_[section] = section + 1;
  }
  return true;
}

uint32_t Exact::unfilled_from(uint32_t section) {
  while (unfilled_[section] != section) {
    unfilled_[section] = unfilled_[unfilled_[section]];
    section = unfilled_[section];
  }
  return section;
}

// Numbers the parts that have no section in common, by their first sections.
size_t Exact::count_parts(std::span<const Open> open) {
  uint32_t lowest = UINT32_MAX, highest = 0;
  for (const Open& one : open) {
    lowest = std::min(lowest, blocks_[one.block].first);
    highest = std::max(highest, blocks_[one.block].last);
  }
  // First the section up to which a block reaches that begins in a section.
  std::fill_n(part_of_.begin() + lowest, highest - lowest + 1, 0);
  for (const Open& one : open) {
    const Block& block = blocks_[one.block];
    part_of_[block.first] = std::max(part_of_[block.first], block.last + 1);
  }
  uint32_t parts = 0, reached = lowest;
  for (uint32_t section = lowest; section <= highest; ++section) {
    const uint32_t reach = part_of_[section];
    if (reach == 0) continue;
    if (section >= reached) ++parts;
    reached = std::max(reached, reach);
    part_of_[section] = parts - 1;
  }
  return parts;
}

// The open blocks without one that has been placed, and with what now rests on it at `top`.
std::span<Exact::Open> Exact::push_without(std::span<const Open> open, const Open& placed,
                                           uint64_t top) {
  const Block& below = blocks_[placed.block];
  Open* const begin = stack_.begin() + used_;
  Open* const end = begin + open.size() - 1;
  used_ += open.size() - 1;
  // What keeps its height is in order already. What is raised is gathered behind the end.
  Open *kept = begin, *raised = end;
  for (const Open& one : open) {
    if (one.block == placed.block) continue;
    const bool raise = one.height < top && blocks_[one.block].overlaps(below);
    raise ? void(*raised++ = {.height = top, .block = one.block}) : void(*kept++ = one);
  }
  std::sort(end, raised);
  for (Open* to = end; raised != end;) {
    *--to = kept != begin && raised[-1] < kept[-1] ? *--kept : *--raised;
  }
  return {begin, end};
}

void Exact::change_unplaced(const Block& block, uint64_t difference) {
  for (uint32_t section = block.first; section <= block.last; ++section) {
    unplaced_[section] += difference;
  }
}

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
