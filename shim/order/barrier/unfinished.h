// SPDX-License-Identifier: Apache-2.0
// The work of a context since it was last seen empty (contexts/seen_empty.h): which thread
// submitted it, if there was only one, and whether the host can see any of it (host_visible.h). The
// device itself can keep the order of work that one thread submitted and the host cannot see
// (debts.h).
//
// Written under one lock (order/submissions.cc), read without.
#pragma once

#include <atomic>
#include <cstdint>

namespace cistern::shim {

// A thread, by the address of what it keeps (process/thread.h). Another one may get the same
// address once it has ended; then it counts as the same one, which comes after all that the first
// one did.
using ThreadId = uintptr_t;

class Unfinished {
 public:
  static constexpr uintptr_t kVisible = 1, kSeveral = 2;

  bool only_of(ThreadId thread) const { return state_.load(std::memory_order_seq_cst) == thread; }
  uintptr_t state() const { return state_.load(std::memory_order_relaxed); }
  // False: kSeveral stands for work of before the context was first seen empty.
  bool known() const { return known_.load(std::memory_order_relaxed); }

  // More work; the first since the context was seen empty.
  void add(ThreadId thread, bool visible) {
    const uintptr_t before = state();
    const bool same = (before & ~kVisible) == thread;
    const uintptr_t seen = (before & kVisible) | (visible ? kVisible : 0);
    state_.store(same ? thread | seen : kSeveral, std::memory_order_seq_cst);
  }
  void begin(ThreadId thread, bool visible) {
    known_.store(true, std::memory_order_relaxed);
    state_.store(thread | (visible ? kVisible : 0), std::memory_order_seq_cst);
  }
  // Nothing is known.
  void reset() {
    known_.store(false, std::memory_order_relaxed);
    state_.store(kSeveral, std::memory_order_seq_cst);
  }

 private:
  std::atomic<uintptr_t> state_{kSeveral};
  std::atomic<bool> known_{false};  // for reports
};

// The thread whose submissions are *quiet*: they end no state, there is no debt, and no host memory
// that their arguments might name; kSeveral: everybody's are. Any other value: nobody's are, and no
// such value is used twice. Whoever changes one of these clears the word afterwards. Who sets it
// looks first, and sets it only over the value that it had before the look. So it never tells of a
// moment that is over: a submission would pass unseen. Defined in submissions.cc.
extern constinit std::atomic<uintptr_t> quiet_submitter;
void submissions_are_not_quiet();

// What was handed over so far may be anybody's, and may be visible. Defined in submissions.cc.
void forget_submitters();

}  // namespace cistern::shim
