// SPDX-License-Identifier: Apache-2.0
// Makes the plan of an iteration from what an Observer saw: finds the period that the program
// repeats now, and offsets for the blocks that are freed within it. If the requests as a whole do
// not repeat, it tries only those in phases. If several threads allocate, each thread that repeats
// itself gets a plan of its own.
//
// One thread at a time. It takes some milliseconds for each thousand requests.
#pragma once

#include <cstdint>

#include "allocator/plan/period.h"
#include "allocator/plan/plan_file.h"

namespace cistern::alloc::plan {

struct Iteration {
  std::span<const Lifetime> requests;
  uint64_t end;      // the call with which the next iteration begins
  uint64_t covered;  // requests of all observed iterations together

  bool has(const Lifetime& life) const { return life.to < end; }
};

// A plan that owns its memory.
class OwnPlan {
 public:
  // All offsets are multiples of `alignment`. False, and nothing changes, if no block can be
  // planned or there is no memory.
  bool make(const Iteration& iteration, Period period, uint64_t alignment);

  const Plan& plan() const { return plan_; }

 private:
  Array<PlannedRequest> requests_;
  Plan plan_;
};

class OwnPlans {
 public:
  // False, and there are no plans, if the program did not repeat itself three times, no block can
  // be planned, or there is no memory.
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
