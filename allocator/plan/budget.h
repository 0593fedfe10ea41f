// SPDX-License-Identifier: Apache-2.0
// Limits a search by steps, so results do not depend on the machine, and by a deadline, for people
// who wait. A step is about one look at one block. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "allocator/base/os.h"

namespace cistern::alloc::plan {

class Budget {
 public:
  // `deadline_ns` in the time of os::now_ns(); UINT64_MAX: none.
  Budget(uint64_t steps, uint64_t deadline_ns)
      : steps_(steps), left_(steps), deadline_ns_(deadline_ns) {
    if (deadline_ns != UINT64_MAX) began_ns_ = seen_ns_ = os::now_ns();
  }

  // Takes `steps`. False once nothing is left.
  bool spend(uint64_t steps) {
    spent_ += steps;
    left_ -= std::min(left_, steps);
    until_look_ -= std::min(until_look_, steps);
    if (until_look_ == 0) look_at_clock();
    return left_ != 0;
  }
  bool over() const { return left_ == 0; }
  uint64_t left() const { return left_; }
  uint64_t spent() const { return spent_; }

  // Nanoseconds until the deadline; UINT64_MAX if there is none.
  uint64_t left_ns() const {
    if (deadline_ns_ == UINT64_MAX) return UINT64_MAX;
    const uint64_t now = os::now_ns();
    return deadline_ns_ > now ? deadline_ns_ - now : 0;
  }

  // The fraction that is left of the steps or of the time, whichever is less. The time is as of the
  // last look at the clock.
  double left_part() const {
    if (left_ == 0 || seen_ns_ >= deadline_ns_) return 0;
    const double steps = static_cast<double>(left_) / static_cast<double>(steps_);
    if (deadline_ns_ == UINT64_MAX) return steps;
    const auto time = static_cast<double>(deadline_ns_ - seen_ns_);
    return std::min(steps, time / static_cast<double>(deadline_ns_ - began_ns_));
  }

  // A budget of `count` eighths of what is left, in steps and in time. The caller must also spend
  // here what it spends there.
  Budget eighths(uint64_t count) const {
    const uint64_t time = left_ns();
    const uint64_t deadline =
        deadline_ns_ == UINT64_MAX ? UINT64_MAX : os::now_ns() + time / 8 * count;
    return {left_ / 8 * count, deadline};
  }
  // A budget with the steps that are left, and a deadline that is `ns` earlier.
  Budget less_time(uint64_t ns) const {
    return {left_,
            deadline_ns_ == UINT64_MAX ? UINT64_MAX : deadline_ns_ - std::min(deadline_ns_, ns)};
  }
  // A budget with the same deadline and at most `steps` steps.
  Budget at_most(uint64_t steps) const { return {std::min(left_, steps), deadline_ns_}; }

 private:
  static constexpr uint64_t kStepsBetweenLooks = 1 << 18;

  void look_at_clock() {
    until_look_ = kStepsBetweenLooks;
    if (deadline_ns_ == UINT64_MAX) return;
    seen_ns_ = os::now_ns();
    if (seen_ns_ >= deadline_ns_) left_ = 0;
  }

  uint64_t steps_, left_, deadline_ns_;
  uint64_t began_ns_ = 0, seen_ns_ = 0;
  uint64_t spent_ = 0, until_look_ = 1;
};

}  // namespace cistern::alloc::plan
