// SPDX-License-Identifier: Apache-2.0
// The work of a context that a free may have to wait for, as the context's slot keeps it: whether
// the context was seen *empty*, with all its work done, and nothing was submitted since; the work
// since then (`Unfinished`); and the context's part of a debt (`Debt`, below). Any thread.
//
// Two things show that a context is empty: a synchronisation of it, and a free of the driver's own.
// Call expect() before that driver call and confirm() after it. A submission in between makes
// confirm() fail. Where work may be unseen (Reclaim::frozen()) nothing is confirmed. A free of
// memory of an empty context has nothing to wait for (pooled/free_wait.h).
//
// A submission ends this state of every context (order/submissions.h). Finding its own context
// would cost each submission a query, while an unnecessary wait for an empty context is short.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/reclaim/reclaim.h"
#include "allocator/reclaim/tickets.h"
#include "shim/cuda_api.h"
#include "shim/process/report_figures.h"
#include "shim/process/thread.h"

namespace cistern::shim {

struct Context;

class SeenEmpty {
 public:
  // What showed that the context is empty. A synchronisation has a ticket that the context has
  // passed. A free of the driver's own waits as the program's would have, and has no ticket.
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

  // expect(): `ticket` was closed, and the driver call follows. confirm(): that call succeeded, so
  // all work submitted before expect() is done. Both are defined in contexts/context_slot.cc, as is
  // contexts_seen_empty.
  void expect(alloc::Ticket ticket);
  void confirm(alloc::Ticket ticket, By by);

  // Ends the state. Whether the context was empty until now.
  bool end() { return (state_.exchange(kBusy, std::memory_order_seq_cst) & kBy) != 0; }

 private:
  static constexpr uint64_t kBy = 3, kBusy = 0;
  static uint64_t expecting(alloc::Ticket ticket) { return (ticket + 1) << 2; }
  static alloc::Ticket ticket_in(uint64_t state) { return (state >> 2) - 1; }

  std::atomic<uint64_t> state_{kBusy};
};

// Not 0 while some context may be empty or is expected to become so; each expectation sets a new
// number. A submission that finds a number ends the state of all contexts. It then sets 0, unless
// the number has changed (order/submissions.h).
extern constinit std::atomic<uint64_t> contexts_seen_empty;

// A thread, by the address of its Thread (process/thread.h). After it has ended, a new thread may
// get the same address and then counts as the same thread. That is safe: all that the new thread
// does comes after all that the old one did.
using ThreadId = uintptr_t;

// The work of a context since it was last seen empty: which thread submitted it, if there was only
// one, and whether the host can see any of it (visible_work.h). The device itself can keep the
// order of work that one thread submitted and the host cannot see (below). Written under one lock
// (order/submissions.cc), read without.
class Unfinished {
 public:
  static constexpr uintptr_t kVisible = 1, kSeveral = 2;

  bool only_of(ThreadId thread) const { return state_.load(std::memory_order_seq_cst) == thread; }
  uintptr_t state() const { return state_.load(std::memory_order_relaxed); }
  // False until the context was first seen empty. Till then the state is kSeveral.
  bool known() const { return known_.load(std::memory_order_relaxed); }

  // add(): more work was submitted. begin(): the first work since the context was seen empty.
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

// The thread whose submissions are *quiet*: they end no context's state, there is no debt, and
// there is no host memory that their arguments could name. kSeveral: the submissions of all threads
// are quiet. Any other value: no thread's are; no such value is used twice. Code that changes one
// of these conditions clears the word afterwards. Code that sets the word first loads it, then
// checks the conditions, and sets it only if it still has the loaded value. So the word is never
// outdated; if it were, a submission could go unnoticed. Defined in submissions.cc.
extern constinit std::atomic<uintptr_t> quiet_submitter;
void submissions_are_not_quiet();

// From now on all work so far counts as that of several threads, and as visible. Defined in
// submissions.cc.
void forget_submitters();

// --- debts: the order that a free owes if it does not wait. With the driver alone, cuMemFree
// returns once all earlier work of the context is done: whatever the program submits afterwards
// runs after that work. If one thread submitted all of it, and the part that the host can see is
// over (visible_work.h), the device can keep that order: the free leaves a *debt* and returns.
//
// The thread that freed is the *debtor*.
//
//   * It submits: before that, one event is recorded for the context, so that it does not cover the
//     new work. The stream waits for that event, once.
//   * It queries an event or a stream that is not done: the thread waits for the debt and queries
//     the driver again.
//   * It ends what work may use: the thread waits for the debt first.
//
// Another thread may know of the free or not.
//
//   * It submits, or ends what work may use: it waits for the debt. Without Cistern it would wait
//     for the context's lock, which the driver's own free holds meanwhile (an H100, driver 580).
//   * It allocates: it waits a second at most. After that it gets memory that was never under the
//     debt (pooled/memory.cc).
//
// No debt begins while a thread waits. A free at such a moment shows that threads do not take turns
// but work at the same time: the next thousand frees wait themselves, as the driver's do. The work
// may need the very thread that waits for it. So that thread gives up after ten seconds, or after
// one if it allocates; from then on no free of this process leaves a debt.
//
// Once the debtor has ended, whatever a thread does comes after its frees: then the host waits
// without a limit. There is one exception. A debt may begin while another thread is handing work
// over in the same context. The debt's event may cover that work, and the work may need a thread
// that waits. Then the limits above hold for an ended debtor as well.
//
// So a freed block can be handed out again at once: only submissions behind the debt reach it.
// Memory that goes back to the driver, or is shared, waits for the debt.
//
// One thread at a time is the debtor, with a debt in any number of contexts; its streams wait for
// all of them. A debt ends when its event has passed, or with a synchronisation of its context. If
// no event can be recorded, the debtor waits for the context in its next call.
//
// Drivers before CUDA 12.5 cannot record an event for a whole context: there are no debts. No debt
// begins during a capture, with peer access or ties, in a careful process, or if Cistern fills
// memory. The rest of this file is defined in debts.cc.

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
  uint64_t since = 0;        // of the first record that is not known to be over
  alloc::Ticket ticket = 0;  // of the last record: it covers what was freed until then
  bool prints_held = false;  // it was asked whether it is over: that brings no print out
  CUevent event = nullptr;   // made for the first debt, ends with the context
};

// The thread with debts; 0: nothing is owed.
extern constinit std::atomic<ThreadId> debtor;
inline constexpr ThreadId kEndedDebtor = 1;  // it ended, and left some

// Of the process.
extern constinit FreeCounts free_counts;

inline ThreadId this_thread_id() { return reinterpret_cast<ThreadId>(&this_thread); }
inline bool any_debts() { return debtor.load(std::memory_order_seq_cst) != 0; }
inline bool others_debts() {
  const ThreadId thread = debtor.load(std::memory_order_seq_cst);
  return thread != 0 && thread != this_thread_id();
}

// The calling thread has just handed work over, and there are debts of another thread's: if they
// began meanwhile, they may cover that work.
void others_debts_may_cover_work();

// Waits until there is no debt; returns whether there is none. The debtor waits without a limit.
// Another thread waits at most ten seconds; after that, frees wait as the driver's do. The caller
// may hold no lock. `who`: how a wait of the debtor is counted.
bool pay_debts(PaidBy who = PaidBy::end_of_use);
// The same, before memory that may be under a debt goes to the driver or elsewhere. Ignores debts
// that begin meanwhile. A thread other than the debtor waits at most a second.
bool pay_for_release();
// Whether there may be a debt, as far as this thread knows. Does not wait.
bool owes_now();

// Whether a free can leave a debt at all, with these settings and this driver.
bool debts_possible();

// Why a free of the calling thread can leave no debt in the context, because of its work, the
// settings or the driver. FreeWaitReason::none: it can.
FreeWaitReason why_no_debt(const Context& owner);

// To be called in a free, before another thread can get the block: leaves a debt of the calling
// thread in the context and returns FreeWaitReason::none. Any other reason: there is no debt, and
// the free must wait. The caller holds a GatePass.
FreeWaitReason owe(Context& owner);

// No free of this process leaves a debt from here on: a thread waited in vain.
void leave_no_more_debts();

// To be called before a submission to this stream (its name without a suffix, ask.h) in the current
// context. True if it waited for another thread's debts. That thread may have synchronised
// meanwhile, and so counted this submission as done: the caller must note the submission again, and
// call this again for debts that began since.
[[nodiscard]] bool order_behind_debts(CUstream stream);

// The number of the last debt's event record, also of one that the driver refused. Call it before a
// synchronisation of a context; if that succeeds, pass the number to paid_by_synchronisation().
uint64_t last_debt();
void paid_by_synchronisation(Context& context, uint64_t last);

// Streams with this handle end: another one may get it.
void forget_waits_of(CUstream stream);
// The context has ended, and its event with it.
void debt_of_context_gone(Context& context);
// To be called when the process ends: waits for all debts, as the last frees would have waited.
void pay_debts_at_exit();
void reset_debts_after_fork();

}  // namespace cistern::shim
