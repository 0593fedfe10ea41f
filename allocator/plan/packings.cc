// SPDX-License-Identifier: Apache-2.0
// Greedy packings, then packings under a ceiling. Where a block fits: placement.cc.
#include "allocator/plan/packings.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace cistern::alloc::plan {

// --- greedy packings ---

namespace {

// Finds the highest end of the blocks placed in a range of sections. In this tree each node holds
// the highest end of its sections, and an end that every one of them has at least.
class Skyline {
 public:
  bool make(size_t sections) {
    leaves_ = std::bit_ceil(std::max<size_t>(sections, 1));
    return nodes_.make(2 * leaves_);
  }

  // A node's `everywhere` also holds for the sections below it, so the nodes above both ends of the
  // range count.
  uint64_t highest(const Block& block) const {
    uint64_t highest = 0;
    size_t from = block.first + leaves_, end = block.last + leaves_ + 1;
    for (size_t left = from, right = end - 1; left != 0; left /= 2, right /= 2) {
      highest = std::max({highest, nodes_[left].everywhere, nodes_[right].everywhere});
    }
    for (; from < end; from /= 2, end /= 2) {
      if (from % 2 != 0) highest = std::max(highest, nodes_[from++].highest);
      if (end % 2 != 0) highest = std::max(highest, nodes_[--end].highest);
    }
    return highest;
  }

  void raise(const Block& block, uint64_t top) {
    size_t from = block.first + leaves_, end = block.last + leaves_ + 1;
    for (size_t left = from, right = end - 1; left != 0; left /= 2, right /= 2) {
      nodes_[left].highest = std::max(nodes_[left].highest, top);
      nodes_[right].highest = std::max(nodes_[right].highest, top);
    }
    const auto raise_all = [&](Node& node) {
      node = {std::max(node.highest, top), std::max(node.everywhere, top)};
    };
    for (; from < end; from /= 2, end /= 2) {
      if (from % 2 != 0) raise_all(nodes_[from++]);
      if (end % 2 != 0) raise_all(nodes_[--end]);
    }
  }

 private:
  struct Node {
    uint64_t highest, everywhere;
  };

  size_t leaves_ = 1;
  Array<Node> nodes_;
};

// Finds the most bytes that are live in any section of a range. In this tree each node holds the
// maximum of the sections below it.
class Peaks {
 public:
  bool make(std::span<const uint64_t> live) {
    leaves_ = live.size();
    if (!nodes_.make(2 * leaves_)) return false;
    std::copy(live.begin(), live.end(), nodes_.begin() + leaves_);
    for (size_t i = leaves_; i-- > 1;) nodes_[i] = std::max(nodes_[2 * i], nodes_[2 * i + 1]);
    return true;
  }

  uint64_t highest(const Block& block) const {
    uint64_t highest = 0;
    size_t from = block.first + leaves_, end = block.last + leaves_ + 1;
    for (; from < end; from /= 2, end /= 2) {
      if (from % 2 != 0) highest = std::max(highest, nodes_[from++]);
      if (end % 2 != 0) highest = std::max(highest, nodes_[--end]);
    }
    return highest;
  }

 private:
  size_t leaves_ = 0;
  Array<uint64_t> nodes_;
};

class Keys {
 public:
  bool make(const Problem& problem, Order order) {
    problem_ = &problem;
    order_ = order;
    if (order == Order::peak) return find_fullness();
    return order != Order::pressure || live_.make(problem.live());
  }

  // Of what comes first it is the highest.
  double key_of(const Block& block) const {
    const double length = block.last - block.first + 1.0, bytes = static_cast<double>(block.bytes);
    switch (order_) {
      case Order::bytes:
        return bytes;
      case Order::area:
        return bytes * length;
      case Order::length:
        return length;
      case Order::birth:
        return -static_cast<double>(block.first);
      case Order::moderate:
        return bytes * std::sqrt(std::sqrt(length));
      case Order::pressure:
        return std::log2(bytes * std::sqrt(length)) - slack(live_.highest(block)) / kFactorTwo;
      case Order::peak:
        return std::log2(bytes * static_cast<double>(full_[block.last + 1] - full_[block.first]));
    }
    return 0;
  }

 private:
  // Twice the size makes up for memory that is less full than the peak by this part of it.
  static constexpr double kFactorTwo = 0.1, kFactorTwoAtPeak = 0.02;
  // Of a section as full as the peak. One of the emptiest counts 1, so no key is infinite.
  static constexpr double kFull = 1 << 24;

  double slack(uint64_t live) const {
    return 1 - static_cast<double>(live) / static_cast<double>(problem_->lower_bound());
  }

  bool find_fullness() {
    const std::span<const uint64_t> live = problem_->live();
    if (!full_.make(live.size() + 1)) return false;
    for (size_t i = 0; i < live.size(); ++i) {
      const double full = std::exp2(-slack(live[i]) / kFactorTwoAtPeak);
      full_[i + 1] = full_[i] + static_cast<uint64_t>(kFull * full) + 1;
    }
    return true;
  }

  const Problem* problem_ = nullptr;
  Order order_ = Order::bytes;
  Peaks live_;
  Array<uint64_t> full_;  // how full the sections before it are, together
};

// To put all blocks on top of each other takes so many times as long as to sort them.
constexpr uint64_t kOnTopPerSort = 4;

// The blocks of `order` from `next` on.
bool put_on_top(const Problem& problem, std::span<const uint32_t> order, size_t next,
                Placement& placement) {
  Skyline skyline;
  if (!skyline.make(problem.live().size())) return false;
  for (size_t i = 0; i < order.size(); ++i) {
    const Block& block = problem.blocks()[order[i]];
    if (i >= next) placement.set_offset(order[i], skyline.highest(block));
    skyline.raise(block, placement.end(order[i]));
  }
  return true;
}

// Writes the key of each block in this order; the block with the highest key comes first. False
// without memory.
bool keys_of(const Problem& problem, Order order, Array<double>& out) {
  Keys keys;
  if (!keys.make(problem, order) || !out.make(problem.blocks().size())) return false;
  for (size_t i = 0; i < out.size(); ++i) out[i] = keys.key_of(problem.blocks()[i]);
  return true;
}

// The blocks' numbers in this order. False without memory.
bool sort_blocks(const Problem& problem, Order order, Array<uint32_t>& out) {
  const std::span<const Block> blocks = problem.blocks();
  struct Keyed {
    double key;
    uint64_t bytes;
    uint32_t block;
  };
  Keys keys;
  Array<Keyed> keyed;
  if (!keys.make(problem, order) || !keyed.make(blocks.size()) || !out.make(blocks.size()))
    return false;
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    keyed[i] = {.key = keys.key_of(blocks[i]), .bytes = blocks[i].bytes, .block = i};
  }
  std::sort(keyed.begin(), keyed.end(), [](const Keyed& a, const Keyed& b) {
    if (a.key != b.key) return a.key > b.key;
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.block < b.block;
  });
  for (size_t i = 0; i < keyed.size(); ++i) out[i] = keyed[i].block;
  return true;
}

}  // namespace

bool pack(const Problem& problem, const Packing& packing, Placement& placement, Budget& budget) {
  const uint64_t began_ns = os::now_ns();
  Array<uint32_t> order;
  if (!sort_blocks(problem, packing.order, order)) return false;
  Budget until_on_top = budget.less_time(kOnTopPerSort * (os::now_ns() - began_ns));
  const bool first = packing.fit == Fit::first;
  uint64_t top = 0;
  placement.clear();
  for (size_t i = 0; i < order.size(); ++i) {
    if (budget.over() || until_on_top.over())
      return put_on_top(problem, order.span(), i, placement);
    const uint32_t block = order[i];
    placement.insert(block, first ? placement.fit_below(block, top) : placement.best_fit(block));
    top = std::max(top, placement.end(block));
    const uint64_t steps = placement.take_steps();
    budget.spend(steps);
    until_on_top.spend(steps);
  }
  return true;
}

uint64_t height_of(std::span<const Block> blocks, std::span<const uint64_t> offsets) {
  uint64_t height = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    height = std::max(height, offsets[i] + blocks[i].bytes);
  }
  return height;
}

// --- packings under a ceiling ---

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
