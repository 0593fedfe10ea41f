// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/planner.h"

#include <algorithm>

#include "allocator/plan/exact.h"
#include "allocator/plan/packings.h"

namespace cistern::alloc::plan {
namespace {

class Planner {
 public:
  Planner(const Problem& problem, const PlannerOptions& options, Planned& out)
      : problem_(problem),
        blocks_(problem.blocks()),
        options_(options),
        budget_(options.steps, options.deadline_ns),
        out_(out) {}

  bool run() {
    if (!placement_.make(problem_) || !out_.offsets.make(blocks_.size())) return false;
    out_.bytes = UINT64_MAX;
    note_memory(0);
    return take_last_plan() && run_greedy() && run_exact() && run_refit();
  }

 private:
  bool done() const { return out_.bytes == problem_.lower_bound(); }

  void note_memory(uint64_t bytes) {
    const uint64_t always = blocks_.size() * (sizeof(Block) + sizeof(uint64_t)) +
                            problem_.live().size() * sizeof(uint64_t) + placement_.bytes();
    out_.memory_bytes = std::max(out_.memory_bytes, always + bytes);
  }

  void offer(std::span<const uint64_t> offsets, const char* winner) {
    const uint64_t bytes = height_of(blocks_, offsets);
    if (bytes < out_.bytes) {
      out_.bytes = bytes;
      out_.winner = winner;
      std::copy(offsets.begin(), offsets.end(), out_.offsets.begin());
    }
    tell(winner);
  }

  void tell(const char* step) const {
    if (options_.report == nullptr) return;
    options_.report(options_.context, {step, out_.bytes, problem_.lower_bound()});
  }

  // Blocks by their old offsets, each to the lowest place that is free: an old plan that still
  // fits keeps its bytes or loses some, and one that does not is mended.
  bool take_last_plan() {
    if (options_.last_plan.size() != blocks_.size() || blocks_.empty()) return true;
    Array<uint32_t> order;
    if (!order.make(blocks_.size())) return false;
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
      const uint64_t one = options_.last_plan[a], other = options_.last_plan[b];
      return one != other ? one < other : a < b;
    });
    for (const uint32_t block : order) {
      if (budget_.over()) return true;
      placement_.insert(block, placement_.first_fit(block));
      budget_.spend(placement_.take_steps());
    }
    offer(placement_.offsets(), "last plan");
    return true;
  }

  // The first packing may take all of the budget, so that there is a plan. The others share an
  // eighth of what is left, and begin only while another one fits into that.
  bool run_greedy() {
    Budget share = budget_.eighths(1);
    for (const Packing& packing : kPackings) {
      const bool is_first = out_.bytes == UINT64_MAX;
      if (done() || (!is_first && !fits_packing(share))) break;
      const uint64_t spent = budget_.spent(), began_ns = os::now_ns();
      if (!is_first) {
        const uint64_t before = share.spent();
        if (!pack(problem_, packing, placement_, share)) return false;
        budget_.spend(share.spent() - before);
      } else {
        if (!pack(problem_, packing, placement_, budget_)) return false;
        share.spend(budget_.spent() - spent);
      }
      if (packing_steps_ == 0) {
        packing_steps_ = budget_.spent() - spent;
        packing_ns_ = os::now_ns() - began_ns;
      }
      offer(placement_.offsets(), packing.name);
    }
    return true;
  }

  bool run_exact() {
    if (done() || budget_.over()) return true;
    ExactParts parts;
    if (!parts.make(problem_)) return false;
    note_memory(parts.bytes());
    while (!done() && !budget_.over() && parts.improve_highest(out_.offsets.span(), budget_)) {
      out_.bytes = height_of(blocks_, out_.offsets.span());
      out_.winner = "exact search";
      tell(out_.winner);
    }
    return true;
  }

  // Of any kind: none takes less than the first greedy one.
  bool fits_packing(const Budget& budget) const {
    return !budget.over() && budget.left() >= packing_steps_ && budget.left_ns() >= packing_ns_;
  }

  // Each time with less above the lower bound: an eighth of what it was, or more of it where that
  // was too little. The first run begins lower: above the bound, greedy packings leave much room.
  bool run_refit() {
    if (done() || !fits_packing(budget_)) return true;
    Refit refit;
    if (!refit.make(problem_, placement_)) return false;
    note_memory(refit.bytes());
    uint64_t part = 24;
    while (!done() && fits_packing(budget_)) {
      const uint64_t bound = problem_.lower_bound(), gap = out_.bytes - bound;
      if (refit.run(bound + gap / part, out_.bytes, budget_)) {
        offer(placement_.offsets(), "under a ceiling");
        part = 8;
      } else {
        part = part / 2 + 1;
      }
    }
    return true;
  }

  const Problem& problem_;
  const std::span<const Block> blocks_;
  const PlannerOptions& options_;
  Budget budget_;
  uint64_t packing_steps_ = 0, packing_ns_ = 0;  // of the first greedy one
  Planned& out_;
  Placement placement_;
};

}  // namespace

bool plan(const Problem& problem, const PlannerOptions& options, Planned& out) {
  return Planner(problem, options, out).run();
}

namespace {

// A place and the last section of the block that had it last.
struct Place {
  uint32_t last;
  uint64_t offset;

  // For a heap with the place on top that is free first, and of several the lowest.
  bool operator<(const Place& other) const {
    return last != other.last ? last > other.last : offset > other.offset;
  }
};

}  // namespace

bool plan_same_size(const Problem& problem, std::span<const Lifetime> lifetimes, Planned& out) {
  const std::span<const Block> blocks = problem.blocks();
  Array<uint32_t> order;
  Array<Place> places;  // of one size, a heap
  if (!order.make(blocks.size()) || !places.make(blocks.size()) ||
      !out.offsets.make(blocks.size())) {
    return false;
  }
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (lifetimes[a].bytes != lifetimes[b].bytes) return lifetimes[a].bytes > lifetimes[b].bytes;
    return blocks[a].first != blocks[b].first ? blocks[a].first < blocks[b].first : a < b;
  });
  out.bytes = 0;
  Place* end = places.begin();
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t block = order[i];
    if (i != 0 && lifetimes[block].bytes != lifetimes[order[i - 1]].bytes) end = places.begin();
    if (end != places.begin() && places[0].last < blocks[block].first) {
      std::pop_heap(places.begin(), end);
    } else {
      *end++ = {.last = 0, .offset = out.bytes};
      out.bytes += blocks[block].bytes;
    }
    (end - 1)->last = blocks[block].last;
    out.offsets[block] = (end - 1)->offset;
    std::push_heap(places.begin(), end);
  }
  out.winner = "same sizes (level 0)";
  out.memory_bytes = blocks.size() * sizeof(Block) + problem.live().size() * sizeof(uint64_t) +
                     order.bytes() + places.bytes() + out.offsets.bytes();
  return true;
}

}  // namespace cistern::alloc::plan
