// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan_arena.h"

namespace cistern::alloc {

void PlanArena::init(Shared* shared, ChunkSupply* supply, const DeviceParts& device, uint32_t owner,
                     bool pooled) {
  const plan::Plan* plan = pooled ? device.plan : nullptr;
  ledger_ = device.ledger;
  next_ = 0;
  plans_ = pooled && device.plans;
  on_ = plan != nullptr || plans_;
  if (plan != nullptr) ledger_->plan_bytes.set(plan->head().bytes);
  replay_.follow(plan, ledger_);
  observes_.store(plans_ && observer_.start(), std::memory_order_relaxed);
  DeviceParts here = device;
  here.reuse = ReuseRule::about;  // what a place is free for is the plan's to say
  pools_.init(shared, &shared->blocks, supply, here, owner,
              {StrategyKind::naive_best_fit, 0, 0, kBlockGranule, false, false}, Role::planned);
}

// A plan that is entered proves itself, and needs no observer.
const plan::PlanHead* PlanArena::think() {
  if (!plans_ || !observes()) return nullptr;
  if (replay_.plan() != nullptr && !replay_.left()) {
    observes_.store(false, std::memory_order_relaxed);
    observer_.stop();
    return nullptr;
  }
  plan::OwnPlan& next = own_[next_];
  if (!observer_.due() || !next.make(observer_)) return nullptr;
  next_ ^= 1;
  const plan::PlanHead& head = next.plan()->head();
  ledger_->plan_bytes.set(head.bytes);
  ledger_->plans_made.add();
  replay_.follow(next.plan(), ledger_);
  return &head;
}

bool PlanArena::observes_again() {
  if (!plans_ || !replay_.left_for_good()) return false;
  if (observes_.exchange(true, std::memory_order_relaxed)) return false;
  if (!observer_.start()) observes_.store(false, std::memory_order_relaxed);
  return false;
}

void PlanArena::end() {
  replay_.follow(nullptr, ledger_);
  if (observes_.exchange(false, std::memory_order_relaxed)) observer_.stop();
}

}  // namespace cistern::alloc
