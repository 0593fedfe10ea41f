// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/refit.h"

#include <algorithm>
#include <cmath>

#include "allocator/plan/greedy.h"

namespace cistern::alloc::plan {
namespace {

// Of a block that lives with more than that, no place is searched among those of others.
constexpr size_t kMostNeighbours = 1 << 18;

constexpr uint64_t kRises = 16;  // the ceiling, by such a part of what is left to the limit

}  // namespace

bool Refit::make(const Problem& problem, Placement& placement, uint64_t effort) {
  blocks_ = problem.blocks();
  placement_ = &placement;
  effort_ = effort;
  const size_t neighbours = std::min(blocks_.size(), kMostNeighbours) + 1;
  if (!sort_blocks(problem, Order::peak, order_) || !keys_of(problem, Order::peak, weights_) ||
      !prices_.make(blocks_.size()) || !displaced_.make(blocks_.size()) ||
      !neighbours_.make(neighbours) || !merged_.make(neighbours) || !taken_.make(neighbours)) {
    return false;
  }
  for (double& weight : weights_) weight = std::exp2(weight);
  std::copy(weights_.begin(), weights_.end(), prices_.begin());
  return true;
}

uint64_t Refit::bytes() const {
  return order_.bytes() + weights_.bytes() + prices_.bytes() + displaced_.bytes() +
         neighbours_.bytes() + merged_.bytes() + taken_.bytes();
}

bool Refit::run(uint64_t ceiling, uint64_t limit, Budget& budget) {
  ceiling_ = ceiling;
  limit_ = limit;
  displaced_count_ = 0;
  placement_->clear();
  Budget search = budget.eighths(6);
  for (const uint32_t block : order_) {
    if (budget.over()) return false;
    if (place(block)) {
      const uint64_t steps = placement_->take_steps();
      search.spend(steps);
      budget.spend(steps);
      continue;
    }
    displaced_[displaced_count_++] = block;
    if (!place_displaced(search, budget)) return false;
  }
  return true;
}

// Where it is free.
bool Refit::place(uint32_t block) {
  const uint64_t offset = placement_->first_fit(block);
  if (offset + blocks_[block].bytes > ceiling_) return false;
  placement_->insert(block, offset);
  return true;
}

// Until each has a place. False where the ceiling reached the limit, or the budget is over.
bool Refit::place_displaced(Budget& search, Budget& budget) {
  uint64_t spent = 0;
  while (displaced_count_ != 0) {
    if (budget.over()) return false;
    const uint32_t block = take_dearest();
    uint64_t steps = displaced_count_;
    const bool searches = !search.over() && blocks_[block].bytes <= ceiling_;
    const size_t neighbours =
        searches ? placement_->neighbours(block, neighbours_, merged_) : neighbours_.size() + 1;
    if (neighbours <= neighbours_.size()) {
      displace(block, cheapest_place(block, neighbours), neighbours);
      steps += neighbours;
    } else if (!place(block)) {
      const uint64_t offset = placement_->first_fit(block);
      if (!raise(offset + blocks_[block].bytes)) return false;
      placement_->insert(block, offset);
    }
    steps += placement_->take_steps();
    spent += steps;
    search.spend(steps);
    budget.spend(steps);
    if (spent <= effort_) continue;
    spent = 0;
    if (!raise(ceiling_ + (limit_ - ceiling_) / kRises + 1)) return false;
  }
  return true;
}

bool Refit::raise(uint64_t ceiling) {
  ceiling_ = std::max(ceiling, ceiling_);
  return ceiling_ < limit_;
}

uint32_t Refit::take_dearest() {
  size_t dearest = 0;
  for (size_t i = 1; i < displaced_count_; ++i) {
    if (weights_[displaced_[i]] > weights_[displaced_[dearest]]) dearest = i;
  }
  const uint32_t block = displaced_[dearest];
  displaced_[dearest] = displaced_[--displaced_count_];
  return block;
}

// Below the ceiling. A window as large as the block goes up over its neighbours, from end to end.
// It leaps over a neighbour that alone costs as much as the cheapest place so far.
Refit::Place Refit::cheapest_place(uint32_t block, size_t neighbours) {
  const auto ends_later = [](const Taken& a, const Taken& b) { return a.end > b.end; };
  const uint64_t bytes = blocks_[block].bytes;
  double price = 0;
  uint64_t offset = 0;
  Place best = {0, HUGE_VAL};
  size_t next = 0, taken = 0;
  const auto go_up_to = [&](uint64_t end) {
    offset = end;
    while (taken != 0 && taken_[0].end <= end) {
      price -= taken_[0].price;
      std::pop_heap(taken_.begin(), taken_.begin() + taken--, ends_later);
    }
    if (taken == 0) price = 0;  // without the error of all sums
  };
  for (;;) {
    for (; next < neighbours && neighbours_[next].offset < offset + bytes; ++next) {
      const Placement::Neighbour& other = neighbours_[next];
      if (other.end <= offset) continue;
      const double own = prices_[other.block];
      if (own >= best.price) {
        go_up_to(other.end);
        continue;
      }
      price += own;
      taken_[taken++] = {other.end, own};
      std::push_heap(taken_.begin(), taken_.begin() + taken, ends_later);
    }
    if (offset + bytes > ceiling_) return best;
    if (price < best.price) best = {offset, price};
    if (taken == 0) return best;  // nothing is in the way
    go_up_to(taken_[0].end);
  }
}

void Refit::displace(uint32_t block, Place place, size_t neighbours) {
  if (place.price != 0) prices_[block] += weights_[block];
  const uint64_t end = place.offset + blocks_[block].bytes;
  for (size_t i = 0; i < neighbours && neighbours_[i].offset < end; ++i) {
    if (neighbours_[i].end <= place.offset) continue;
    placement_->remove(neighbours_[i].block);
    displaced_[displaced_count_++] = neighbours_[i].block;
  }
  placement_->insert(block, place.offset);
}

}  // namespace cistern::alloc::plan
