// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan_arena.h"

#include <algorithm>

namespace cistern::alloc {

void PlanArena::init(Shared* shared, ChunkSupply* supply, const DeviceParts& device, uint32_t owner,
                     const ChunkSizes& sizes) {
  const bool pooled = sizes.kind != StrategyKind::none;
  const std::span<const plan::Plan> plans = pooled ? device.plan : std::span<const plan::Plan>();
  ledger_ = device.ledger;
  align_ = std::max(sizes.align, kBlockGranule);
  next_ = 0;
  plans_ = pooled && device.plans;
  on_ = !plans.empty() || plans_;
  ask_again();
  if (!plans.empty()) ledger_->plan_bytes.set(plan::bytes_of(plans));
  replay_.follow(plans, ledger_);
  observes_.store(plans_ && observer_.start(), std::memory_order_relaxed);
  DeviceParts here = device;
  here.reuse = ReuseRule::about;  // what a place is free for is the plan's to say
  pools_.init(shared, &shared->blocks, supply, here, owner,
              {StrategyKind::naive_best_fit, 0, 0, align_, false, false}, Role::planned);
}

void PlanArena::ask_again() {
  refusals_.store(0, std::memory_order_relaxed);
  periods_to_wait_.store(0, std::memory_order_relaxed);
  owed_.store(false, std::memory_order_relaxed);
  refused_live_.store(0, std::memory_order_relaxed);
  refused_at_ns_.store(0, std::memory_order_relaxed);
}

// An attempt that is refused releases idle memory, which the pools must then take from the driver
// again. Once a second that costs little, however short a period is.
bool PlanArena::may_obtain(plan::PlanPlace place, MemorySource* source) {
  constexpr uint64_t kLess = 16;  // a part of the chunk
  constexpr uint64_t kLongestWaitNs = 1'000'000'000;
  const bool once = replay_.of_a_run();
  if (!place.first && !once) return false;
  const unsigned left = periods_to_wait_.load(std::memory_order_relaxed);
  if (left == 0) return true;
  if (!once) periods_to_wait_.store(left - 1, std::memory_order_relaxed);
  const uint64_t waited = os::now_ns() - refused_at_ns_.load(std::memory_order_relaxed);
  if (waited >= kLongestWaitNs) return true;
  const uint64_t refused_live = refused_live_.load(std::memory_order_relaxed);
  if (ledger_->live.get() + place.plan_bytes / kLess < refused_live) return true;
  return owed_.load(std::memory_order_relaxed) && source->pays_what_it_owes(/*waits=*/false);
}

void PlanArena::note_obtained(bool obtained, bool owed) {
  if (obtained) return ask_again();
  constexpr unsigned kMost = 10;
  const unsigned refusals = refusals_.load(std::memory_order_relaxed);
  refusals_.store(std::min(refusals + 1, kMost), std::memory_order_relaxed);
  periods_to_wait_.store((1u << refusals) - 1, std::memory_order_relaxed);
  owed_.store(owed, std::memory_order_relaxed);
  refused_live_.store(ledger_->live.get(), std::memory_order_relaxed);
  refused_at_ns_.store(os::now_ns(), std::memory_order_relaxed);
}

bool PlanArena::note_served(uint64_t bytes, const plan::Caller& caller, uint64_t address) {
  if (!observes()) {
    observe_again();
    return false;
  }
  return observer_.allocated(bytes, caller, address);
}

// While a plan is followed, nothing is observed. A new plan gets its chance to be entered before
// another one is made, even if a look became due while it was made.
const plan::OwnPlans* PlanArena::think() {
  if (!plans_ || !observes()) return nullptr;
  if (observer_.due()) replay_.pass_silent_threads();
  if (replay_.has_plan() && !replay_.seldom_followed()) {
    if (!replay_.left()) return stop_observing(), nullptr;
    if (!replay_.left_for_a_period()) return nullptr;
  }
  plan::OwnPlans& next = own_[next_];
  if (!observer_.due() || !next.make(observer_, align_)) return nullptr;
  next_ ^= 1;
  ledger_->plan_bytes.set(plan::bytes_of(next.plans()));
  ledger_->plans_made.add();
  ask_again();
  replay_.follow(next.plans(), ledger_);
  return &next;
}

void PlanArena::observe_again() {
  if (!plans_ || !replay_.seldom_followed()) return;
  const LockGuard guard(mutex_);
  if (!observes()) observes_.store(observer_.start(), std::memory_order_relaxed);
}

void PlanArena::stop_observing() {
  const LockGuard guard(mutex_);
  if (observes_.exchange(false, std::memory_order_relaxed)) observer_.stop();
}

void PlanArena::end() {
  replay_.follow({}, ledger_);
  stop_observing();
}

}  // namespace cistern::alloc
