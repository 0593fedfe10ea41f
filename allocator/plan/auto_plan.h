// SPDX-License-Identifier: Apache-2.0
// Makes the plan of an iteration from what an Observer saw: the period that the program repeats
// now, its blocks that are freed within it, and offsets for them.
//
// One thread at a time. It takes some milliseconds for each thousand requests.
#pragma once

#include <cstdint>

#include "allocator/plan/observer.h"
#include "allocator/plan/plan_file.h"

namespace cistern::alloc::plan {

// A plan that lies in memory of its own.
class OwnPlan {
 public:
  // All places are multiples of `alignment`. False, and nothing changed: the program did not repeat
  // itself three times, nothing of it can be planned, or there is no memory.
  bool make(Observer& observer, uint64_t alignment);

  const Plan* plan() const { return &plan_; }

 private:
  Array<PlannedRequest> requests_;
  Plan plan_;
};

}  // namespace cistern::alloc::plan
