// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/refit.h"

#include <algorithm>
#include <cmath>

#include "allocator/plan/greedy.h"

namespace cistern::alloc::plan {
namespace {

// For one block no more than such a part of what is left of the search goes under one ceiling.
constexpr double kShares = 16;

// The ceiling rises by such a part of what it has above the lower bound, or of what the limit has.
constexpr uint64_t kRises = 12, kLeastRises = 256;

// Most blocks find a place that costs less than so many times their own price, and this is found
// sooner where everything dearer is leapt over.
constexpr double kUsualPrice = 2;

}  // namespace

bool Refit::make(const Problem& problem, Placement& placement) {
  blocks_ = problem.blocks();
  placement_ = &placement;
  bound_ = problem.lower_bound();
  if (!sort_blocks(problem, Order::peak, order_) || !keys_of(problem, Order::peak, weights_) ||
      !prices_.make(blocks_.size()) || !displaced_.make(blocks_.size())) {
    return false;
  }
  for (double& weight : weights_) weight = std::exp2(weight);
  std::copy(weights_.begin(), weights_.end(), prices_.begin());
  return true;
}

uint64_t Refit::bytes() const {
  return order_.bytes() + weights_.bytes() + prices_.bytes() + displaced_.bytes();
}

bool Refit::run(uint64_t ceiling, uint64_t limit, Budget& budget) {
  ceiling_ = ceiling;
  limit_ = limit;
  displaced_count_ = 0;
  placement_->clear();
  Budget search = budget.eighths(7);
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
  placement_->insert(block, offset, static_cast<float>(prices_[block]));
  return true;
}

// Until each has a place. False where the ceiling reached the limit, or the budget is over.
bool Refit::place_displaced(Budget& search, Budget& budget) {
  double began = search.left_part();
  while (displaced_count_ != 0) {
    if (budget.over()) return false;
    const uint32_t block = take_dearest();
    if (!search.over() && blocks_[block].bytes <= ceiling_) {
      displace(block);
    } else if (!place(block)) {
      if (!raise(placement_->first_fit(block) + blocks_[block].bytes)) return false;
      place(block);
    }
    const uint64_t steps = displaced_count_ + placement_->take_steps();
    search.spend(steps);
    budget.spend(steps);
    const double left = search.left_part();
    if (began - left <= left / kShares) continue;
    began = left;
    const uint64_t rise = std::max((ceiling_ - bound_) / kRises, (limit_ - bound_) / kLeastRises);
    if (!raise(ceiling_ + rise + 1)) return false;
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

void Refit::displace(uint32_t block) {
  const auto rest = displaced_.span().subspan(displaced_count_);
  const double usual = kUsualPrice * prices_[block];
  Placement::Place place = placement_->cheapest_place(block, ceiling_, usual, rest);
  if (place.price == usual) place = placement_->cheapest_place(block, ceiling_, HUGE_VAL, rest);
  if (place.price != 0) prices_[block] += weights_[block];
  for (size_t i = 0; i < place.in_the_way; ++i) placement_->remove(rest[i]);
  displaced_count_ += place.in_the_way;
  placement_->insert(block, place.offset, static_cast<float>(prices_[block]));
}

}  // namespace cistern::alloc::plan
