// SPDX-License-Identifier: Apache-2.0
// Follows the requests of a program through a plan. A request that is the next one of the plan, by
// its bytes, has a place there. The first that is another one leaves the plan; the pools serve it
// and those behind it. Whether the memory of a place is free is not known here: who hands it out
// looks (allocator/plan_arena.h).
//
// The plan of a whole run begins with the first request, and is left once. The plan of an iteration
// begins behind as many requests as it did when it was made. Once it was left, it begins again
// where the last four requests were those with which it ends.
//
// Any thread: there is a lock. Owns nothing; the plan stays unchanged while it is followed.
#pragma once

#include <cstdint>

#include "allocator/base/ledger.h"
#include "allocator/base/mutex.h"
#include "allocator/plan/plan_file.h"

namespace cistern::alloc::plan {

struct PlanPlace {
  uint64_t offset;
  uint64_t plan_bytes;  // of the memory in which that is
  bool first;           // that has a place in its period
};

class Replay {
 public:
  // nullptr: there is no plan.
  void follow(const Plan* plan, Ledger* ledger);
  const Plan* plan() const { return plan_.load(std::memory_order_acquire); }

  // The request of `bytes` that the program makes now. True: it has a place in the plan.
  bool next(uint64_t bytes, PlanPlace* place);

  // Whether the plan is not followed now; and for good: it was a run's, or for so long that the
  // program seems to do something else.
  bool left() const { return at_.load(std::memory_order_relaxed) == kOutside; }
  bool left_for_good() const {
    return left() && (once_.load(std::memory_order_relaxed) ||
                      outside_.load(std::memory_order_relaxed) > kMostOutside);
  }

  void reset_after_fork() { mutex_.reset(); }

 private:
  static constexpr uint64_t kOutside = ~uint64_t{0};
  static constexpr unsigned kRemembered = 4;
  static constexpr uint64_t kMostOutside = 3;  // periods

  bool begins_with(const Plan& plan, uint64_t bytes) const;
  bool ended_before(const Plan& plan) const;

  Mutex mutex_;
  std::atomic<const Plan*> plan_;
  Ledger* ledger_;
  std::atomic<uint64_t> at_;       // the request of the plan that comes next; kOutside: none does
  std::atomic<bool> once_;         // it is a run's
  bool placed_;                    // a request of this period
  std::atomic<uint64_t> outside_;  // periods
  uint64_t since_left_;            // requests
  uint64_t seen_;                  // requests of the program
  uint64_t last_[kRemembered];     // bytes of the last ones, by their number
};

}  // namespace cistern::alloc::plan
