// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/replay.h"

#include <algorithm>

namespace cistern::alloc::plan {

void Replay::follow(const Plan* plan, Ledger* ledger) {
  LockGuard guard(mutex_);
  ledger_ = ledger;
  seen_ = since_left_ = 0;
  outside_.store(0, std::memory_order_relaxed);
  once_.store(plan != nullptr && plan->head().period == Period::run, std::memory_order_relaxed);
  at_.store(kOutside, std::memory_order_relaxed);
  plan_.store(plan, std::memory_order_release);
}

bool Replay::next(uint64_t bytes, PlanPlace* place) {
  LockGuard guard(mutex_);
  if (plan_.load(std::memory_order_relaxed) == nullptr) return false;
  const Plan& plan = *plan_.load(std::memory_order_relaxed);
  uint64_t at = at_.load(std::memory_order_relaxed);
  if (at == kOutside && begins_with(plan, bytes)) {
    at = 0;
    since_left_ = 0;
    outside_.store(0, std::memory_order_relaxed);
    ledger_->plan_entered.add();
  }
  last_[seen_++ % kRemembered] = bytes;
  if (at == kOutside) {
    outside_.store(++since_left_ / plan.head().requests, std::memory_order_relaxed);
    return false;
  }
  const PlannedRequest expected = plan.request(at);
  if (expected.bytes != bytes) {
    ledger_->plan_left.add();
    at_.store(kOutside, std::memory_order_relaxed);
    return false;
  }
  const bool over = at + 1 == plan.head().requests;
  if (over) ledger_->plan_periods.add();
  const bool again = plan.head().period == Period::iteration;
  at_.store(!over ? at + 1 : again ? 0 : kOutside, std::memory_order_relaxed);
  if (at == 0) placed_ = false;
  if (expected.outside != 0) return false;
  *place = {expected.offset, plan.head().bytes, !placed_};
  placed_ = true;
  return true;
}

bool Replay::begins_with(const Plan& plan, uint64_t bytes) const {
  if (plan.request(0).bytes != bytes) return false;
  if (seen_ == plan.head().before) return true;
  return plan.head().period == Period::iteration && ended_before(plan);
}

// A plan of fewer requests than are compared ends several times in them.
bool Replay::ended_before(const Plan& plan) const {
  const uint64_t requests = plan.head().requests;
  for (uint64_t i = 1; i <= kRemembered; ++i) {
    if (i > seen_) return false;
    const uint64_t expected = plan.request(requests - 1 - (i - 1) % requests).bytes;
    if (last_[(seen_ - i) % kRemembered] != expected) return false;
  }
  return true;
}

}  // namespace cistern::alloc::plan
