// SPDX-License-Identifier: Apache-2.0
// Makes the plan of an iteration from what an Observer saw: the period that the program repeats
// now, its blocks that are freed within it, and offsets for them. If its requests as a whole never
// repeat, those in phases may. If several threads allocate, each that repeats itself gets a plan of
// its own.
//
// One thread at a time. It takes some milliseconds for each thousand requests.
#pragma once

#include <cstdint>

#include "allocator/plan/observer.h"
#include "allocator/plan/plan_file.h"

namespace cistern::alloc::plan {

struct Iteration {
  std::span<const Lifetime> requests;
  uint64_t end;      // the call with which the next one begins
  uint64_t covered;  // requests of all of them

  bool has(const Lifetime& life) const { return life.to < end; }
};

// A plan that lies in memory of its own.
class OwnPlan {
 public:
  // All places are multiples of `alignment`. False, and nothing changed: nothing of it can be
  // planned, or there is no memory.
  bool make(const Iteration& iteration, Period period, uint64_t alignment);

  const Plan& plan() const { return plan_; }

 private:
  Array<PlannedRequest> requests_;
  Plan plan_;
};

class OwnPlans {
 public:
  // False, and nothing is planned: the program did not repeat itself three times, or as above.
  bool make(Observer& observer, uint64_t alignment);

  std::span<const Plan> plans() const { return {plans_, count_}; }
  uint64_t requests() const;

 private:
  bool add(const Iteration& iteration, Period period, uint64_t alignment);
  bool make_by_phases(const Observed& all, uint64_t alignment);
  bool make_by_threads(const Observed& all, uint64_t alignment);

  OwnPlan own_[kMostPlans];
  Plan plans_[kMostPlans];
  size_t count_ = 0;
};

}  // namespace cistern::alloc::plan
