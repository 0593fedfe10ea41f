// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/packings.h"

#include <algorithm>
#include <cmath>

namespace cistern::alloc::plan {
namespace {

// One rise of the ceiling uses at most this part of the remaining search.
constexpr double kShares = 32;

// The ceiling rises by 1/kRises of its distance from the lower bound, but at least by 1/kLeastRises
// of the limit's distance.
constexpr uint64_t kRises = 24, kLeastRises = 256;

// If a block is twice as hard to place, its price is higher by 2 to the power of this. With less
// than twice the price, chains of blocks that displace each other end sooner.
constexpr double kPriceOfFactorTwo = 0.7;

// Most blocks find a place for less than this many times their own price, and find it sooner if the
// search skips everything dearer.
constexpr double kUsualPrice = 1.1;

}  // namespace

bool Refit::make(const Problem& problem, Placement& placement) {
  blocks_ = problem.blocks();
  placement_ = &placement;
  bound_ = problem.lower_bound();
  if (!sort_blocks(problem, Order::peak, order_) || !keys_of(problem, Order::peak, weights_) ||
      !prices_.make(blocks_.size()) || !displaced_.make(blocks_.size())) {
    return false;
  }
  for (double& weight : weights_) weight = std::exp2(kPriceOfFactorTwo * weight);
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

// Places the block where it displaces no other; false if there is no such place.
bool Refit::place(uint32_t block) {
  const uint64_t offset = placement_->fit_below(block, ceiling_);
  if (offset + blocks_[block].bytes > ceiling_) return false;
  placement_->insert(block, offset, static_cast<float>(prices_[block]));
  return true;
}

// Until each has a place. False where the ceiling reached the limit, or the budget is over. The
// search before a rise takes a part of its share, as large as the rise is of a whole one: a small
// block that finds no place costs little time, or little height.
bool Refit::place_displaced(Budget& search, Budget& budget) {
  double began = search.left_part(), part = 0;
  while (displaced_count_ != 0) {
    if (budget.over()) return false;
    if (!place_dearest(!search.over())) return false;
    const uint64_t steps = displaced_count_ + placement_->take_steps();
    search.spend(steps);
    budget.spend(steps);
    const double left = search.left_part();
    if (displaced_count_ == 0 || began - left <= part * left / kShares) continue;
    const uint64_t whole = whole_rise(), rise = std::min(whole, needed_rise());
    const double wanted = static_cast<double>(rise) / static_cast<double>(whole);
    if (wanted > part) {
      part = wanted;
      continue;
    }
    began = left;
    part = 0;
    if (!raise(ceiling_ + rise)) return false;
  }
  return true;
}

// Places the dearest block, displacing others or above all of them. False if the ceiling reached
// the limit.
bool Refit::place_dearest(bool displaces) {
  const uint32_t block = take_dearest();
  if (displaces && blocks_[block].bytes <= ceiling_) {
    displace(block);
    return true;
  }
  return place(block) ||
         (raise(placement_->first_fit(block) + blocks_[block].bytes) && place(block));
}

uint64_t Refit::whole_rise() const {
  return std::max((ceiling_ - bound_) / kRises, (limit_ - bound_) / kLeastRises) + 1;
}

// With which the only displaced block has a place. What several need is not known.
uint64_t Refit::needed_rise() {
  if (displaced_count_ != 1) return UINT64_MAX;
  const uint64_t end = placement_->first_fit(displaced_[0]) + blocks_[displaced_[0]].bytes;
  return end - std::min(end, ceiling_);
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
