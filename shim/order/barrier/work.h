// SPDX-License-Identifier: Apache-2.0
// The work of a context that a free may have to wait for, as the context's slot keeps it: whether
// the context was seen *empty*, with all its work done, and nothing was submitted since; the work
// since then (`Unfinished`); and the context's part of a debt (`Debt`; debts.h says what a debt
// is). Any thread.
//
// Two things show that a context is empty: a synchronisation of it, and a free of the driver's own.
// Call expect() before that driver call and confirm() after it. A submission in between makes
// confirm() fail. Where work may be unseen (Reclaim::frozen()) nothing is confirmed. A free of
// memory of an empty context has nothing to wait for (pooled/free_wait.h).
//
// A submission ends the state of every context (order/submissions.h). To find the one context would
// cost each submission a query, while a wait for a context that is empty after all is short.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/ticket.h"
#include "allocator/reclaim/reclaim.h"
#include "shim/cuda_api.h"
#include "shim/process/free_counts.h"
#include "shim/process/thread.h"

namespace cistern::shim {

class SeenEmpty {
 public:
  // What showed it. A synchronisation was given a ticket that the context has passed; a free of the
  // driver's own waits for as much as the program's would have, and says nothing about tickets.
  enum class By : uint8_t { kSynchronisation = 1, kDriverFree = 2 };

  // Whether the context is empty. If so, *latest covers all its work: the ticket of the
  // synchronisation, else Reclaim::kNow.
  bool now(alloc::Ticket* latest) const {
    const uint64_t state = state_.load(std::memory_order_acquire);
    const uint64_t by = state & kBy;
    if (by == 0) return false;
    *latest =
        by == static_cast<uint64_t>(By::kSynchronisation) ? ticket_in(state) : alloc::Reclaim::kNow;
    return true;
  }

  // `ticket` was closed; the driver call follows. It succeeded: what was submitted before
  // expect() is done.
  void expect(alloc::Ticket ticket);
  void confirm(alloc::Ticket ticket, By by);

  // Whether it was empty until now.
  bool end() { return (state_.exchange(kBusy, std::memory_order_seq_cst) & kBy) != 0; }

 private:
  static constexpr uint64_t kBy = 3, kBusy = 0;
  static uint64_t expecting(alloc::Ticket ticket) { return (ticket + 1) << 2; }
  static alloc::Ticket ticket_in(uint64_t state) { return (state >> 2) - 1; }

  std::atomic<uint64_t> state_{kBusy};
};

// Not 0 while a context may be empty, or is expected to be; another number each time. A submission
// that finds one ends the state of all contexts, then clears the number, unless it has changed
// (order/submissions.h).
extern constinit std::atomic<uint64_t> contexts_seen_empty;

// A thread, by the address of what it keeps (process/thread.h). Another one may get the same
// address once it has ended; then it counts as the same one, which comes after all that the first
// one did.
using ThreadId = uintptr_t;

// The work of a context since it was last seen empty: which thread submitted it, if there was only
// one, and whether the host can see any of it (visible_work.h). The device itself can keep the
// order of work that one thread submitted and the host cannot see (debts.h). Written under one lock
// (order/submissions.cc), read without.
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

struct Debt {
  // *Open*: nothing was submitted since the free, so that further frees of this thread belong to
  // the same debt. 0: it is not.
  std::atomic<ThreadId> open_for{0};
  // The rest with the lock of debts.cc.
  enum class State : uint8_t {
    none,
    recorded,
    unrecorded
  };  // the last: the driver refused the event
  State state = State::none;
  uint64_t number = 0;       // of the event's last record
  uint64_t since = 0;        // of the first one that is not known to be over
  alloc::Ticket ticket = 0;  // of the last record: it covers what was freed until then
  bool prints_held = false;  // it was asked whether it is over: that brings no print out
  CUevent event = nullptr;   // made for the first debt, ends with the context
};

// The thread with debts; 0: nothing is owed.
extern constinit std::atomic<ThreadId> debtor;
inline constexpr ThreadId kEndedDebtor = 1;  // it ended, and left some

// Of the process. Defined in debts.cc.
extern constinit FreeCounts free_counts;

inline ThreadId this_thread_id() { return reinterpret_cast<ThreadId>(&this_thread); }
inline bool any_debts() { return debtor.load(std::memory_order_seq_cst) != 0; }
inline bool others_debts() {
  const ThreadId thread = debtor.load(std::memory_order_seq_cst);
  return thread != 0 && thread != this_thread_id();
}

// The calling thread has just handed work over, and there are debts of another thread's: if they
// began meanwhile, they may cover that work. Defined in debts.cc.
void others_debts_may_cover_work();

// Waits until nothing is owed, as long as that takes; another thread than the debtor does so for
// ten seconds at most, and after that frees wait as the driver's do. Whether nothing is owed. No
// lock is held by the caller. `who` is what a wait of the debtor counts as. Defined in debts.cc.
bool pay_debts(PaidBy who = PaidBy::end_of_use);
// The same before memory that may be under a debt goes elsewhere, whatever is owed for other memory
// meanwhile; another thread waits for a second at most.
bool pay_for_release();
// Whether an order may still be owed, as far as this thread knows. Does not wait.
bool owes_now();

}  // namespace cistern::shim
