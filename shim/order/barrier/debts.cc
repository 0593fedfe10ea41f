// SPDX-License-Identifier: Apache-2.0
#include "shim/order/barrier/work.h"

#include <pthread.h>

#include <algorithm>
#include <optional>

#include "allocator/base/os.h"
#include "allocator/base/threads.h"
#include "shim/entry/driver.h"
#include "shim/order/ask.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/careful.h"
#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/order/streams/stream_marks.h"
#include "shim/order/ties.h"
#include "shim/process/background.h"
#include "shim/process/settings.h"

namespace cistern::shim {

constinit std::atomic<ThreadId> debtor{0};
constinit FreeCounts free_counts{};

namespace {

using State = Debt::State;

// How long a thread waits for another thread's work. That work may itself wait for this thread.
constexpr uint64_t kPatience = 10'000'000'000;

constinit alloc::Mutex mutex;  // guards all below, and each context's Debt except open_for
constinit uint64_t records = 0;
constinit std::atomic<bool> covers_others{false};   // the debts may cover other threads' work
constinit std::atomic<bool> waited_in_vain{false};  // a thread gave up waiting for another's debts
constinit std::atomic<bool> process_ends{false};
constinit std::atomic<int> waiting{0};             // threads waiting for debts; no debt begins then
constinit std::atomic<int> held_up{0};             // of these, threads that wait for the debtor
constinit std::atomic<unsigned> frees_to_wait{0};  // before a free leaves a debt again

// Streams of the debtor that already wait for all debts up to a record. A stream without an entry
// waits again.
struct Wait {
  CUstream stream;
  CUcontext context;  // the context whose default stream it is; nullptr: it is no default stream
  uint64_t record;
};
constexpr size_t kWaits = 64;
constinit Wait waits[kWaits] = {};
constinit size_t next_wait = 0;
constinit unsigned submissions_behind = 0;
constinit std::atomic<bool> waits_are_stale{false};  // a stream ended while the lock was taken

// Whether another thread waits for the debts of earlier frees, or did so within the last kFrees
// frees. A debt would hold that thread up.
bool threads_work_at_once() {
  constexpr unsigned kFrees = 1000;
  if (held_up.load() != 0) frees_to_wait.store(kFrees);
  unsigned left = frees_to_wait.load();
  while (left != 0 && !frees_to_wait.compare_exchange_weak(left, left - 1)) {
  }
  return left != 0;
}

// What forbids a debt now. Code that changes one of these conditions pays the debts afterwards.
// Ties are the exception, since the streams of the other context wait for the debt as well.
FreeWaitReason why_forbidden(const Context& owner) {
  alloc::Reclaim& reclaim = shared().reclaim;
  const bool at_once = threads_work_at_once();
  if (at_once || waited_in_vain.load() || waiting.load() != 0) return FreeWaitReason::threads_met;
  if (capture_gate().capturing()) return FreeWaitReason::capture;
  if (any_peer_access()) return FreeWaitReason::peers;
  if (reclaim.frozen() || careful() || is_work_unseen()) return FreeWaitReason::careful;
  if (owner.source.closing() || owner.careful.load()) return FreeWaitReason::other;
  return reclaim.tied(owner.number) ? FreeWaitReason::ties : FreeWaitReason::none;
}

// What forbids debts in every context.
FreeWaitReason why_never() {
  if (policy().free_sync != config::FreeSync::kAuto) return FreeWaitReason::setting;
  if (driver().cuCtxRecordEvent == nullptr) return FreeWaitReason::old_driver;
  if (alloc::fill_mode(policy()) != alloc::FillMode::off) return FreeWaitReason::fill;
  if (is_work_unseen()) return FreeWaitReason::careful;
  if (process_ends.load()) return FreeWaitReason::other;
  return waited_in_vain.load() ? FreeWaitReason::threads_met : FreeWaitReason::none;
}

// The reason why the work is not this thread's alone, or why the host sees it.
FreeWaitReason why_not_alone(const Unfinished& work) {
  const ThreadId me = this_thread_id();
  if (work.only_of(me)) return FreeWaitReason::none;
  if (work.state() == (me | Unfinished::kVisible)) return FreeWaitReason::visible;
  return work.known() ? FreeWaitReason::several_threads : FreeWaitReason::not_seen_idle;
}

bool has_event(Debt& debt, CUcontext handle) {
  if (debt.event != nullptr) return true;
  const ContextScope scope(handle);
  if (!scope || !create_event(&debt.event)) debt.event = nullptr;
  return debt.event != nullptr;
}

// --- with the lock ---

template <typename Holds>
bool any_context(Holds holds) {
  bool any = false;
  for_each_context([&](Context& context) { any |= holds(context.debt); });
  return any;
}

void end_if_paid() {
  const bool owed = any_context([](const Debt& debt) {
    return debt.open_for.load(std::memory_order_relaxed) != 0 || debt.state != State::none;
  });
  if (owed) return;
  debtor.store(0, std::memory_order_seq_cst);
  covers_others.store(false);
}

// Each open debt is closed before its event is recorded. So the event covers all work before a free
// that still found the debt open. The ticket is closed first as well, as for a mark
// (allocator/reclaim/reclaim.h).
void close_open_debts() {
  const LetByCaptures allowed;
  for_each_context([&](Context& context) {
    Debt& debt = context.debt;
    if (debt.open_for.exchange(0, std::memory_order_seq_cst) == 0) return;
    const Visit visit(context);
    if (!visit.open()) return;  // the thread that ends the context waits for its work
    debt.ticket = shared().reclaim.close();
    const CUresult recorded =
        noted(driver().cuCtxRecordEvent(visit.handle(), debt.event), visit.handle());
    if (recorded == CUDA_SUCCESS) free_counts.events.add();
    const bool another = debt.state != State::none;
    debt.state = recorded == CUDA_SUCCESS ? State::recorded : State::unrecorded;
    debt.number = ++records;
    if (!another) debt.since = debt.number;
  });
}

// Whether the driver may record the event later, though it refuses it now. If not, the work has
// failed.
bool may_come(CUresult refused) {
  return refused == CUDA_ERROR_OUT_OF_MEMORY || refused == CUDA_ERROR_NOT_PERMITTED ||
         refused == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
         refused == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

// Work that failed is over, and so is the work of a context that can no longer be made current.
// Memory that was freed before an event that has passed is clean.
void ask_debts() {
  const LetByCaptures allowed;
  for_each_context([&](Context& context) {
    Debt& debt = context.debt;
    if (debt.state == State::none) return;
    const Visit visit(context);
    if (!visit.open()) return;
    const ContextScope scope(visit.handle());
    if (scope && debt.state == State::unrecorded) {
      const CUresult recorded = noted(driver().cuCtxRecordEvent(visit.handle(), debt.event));
      if (recorded == CUDA_SUCCESS) debt.state = State::recorded;
      if (recorded != CUDA_SUCCESS && may_come(recorded)) return;
    }
    const bool asks = scope && debt.state == State::recorded;
    const auto reached = asks ? state_of(debt.event, visit.handle()) : alloc::MarkState::failed;
    if (reached == alloc::MarkState::pending) return;
    if (reached == alloc::MarkState::passed) shared().reclaim.passed(context.number, debt.ticket);
    debt.state = State::none;
    debt.prints_held = static_cast<bool>(scope);
  });
  end_if_paid();
}

CUcontext owner_of_default(CUstream stream) {
  return stands_for_several(stream) ? current_handle() : nullptr;
}

Wait* find_wait(CUstream stream, CUcontext context) {
  for (Wait& wait : waits) {
    if (wait.record != 0 && wait.stream == stream && wait.context == context) return &wait;
  }
  return nullptr;
}

// Whether the stream captures. If so, it need not wait: captured calls are not work yet, and the
// launch of the graph will wait.
bool is_captured(CUstream stream) {
  return capture_gate().capturing() && capture_gate().capturing(stream);
}

bool make_wait(CUstream stream) {
  bool all = true;
  for_each_context([&](Context& context) {
    if (context.debt.state != State::recorded) return;
    all = all && ask(driver().cuStreamWaitEvent, stream, context.debt.event, 0U) == CUDA_SUCCESS;
    if (all) free_counts.stream_waits.add();
  });
  return all;
}

void note_wait(CUstream stream, CUcontext context) {
  Wait* wait = find_wait(stream, context);
  if (wait == nullptr) wait = &waits[next_wait++ % kWaits];
  *wait = {stream, context, records};
}

void forget_waits() { std::fill_n(waits, kWaits, Wait{}); }

// False: the host must wait.
bool put_behind(CUstream stream) {
  constexpr unsigned kAskEvery = 16;
  if (waits_are_stale.exchange(false)) forget_waits();
  if (++submissions_behind % kAskEvery == 0) ask_debts();
  CUcontext context = owner_of_default(stream);
  const Wait* wait = find_wait(stream, context);
  if (!any_debts() || (wait != nullptr && wait->record == records)) return true;
  if (any_context([](const Debt& debt) { return debt.state == State::unrecorded; })) return false;
  if (is_captured(stream)) return true;
  if (!make_wait(stream)) return false;
  note_wait(stream, context);
  return true;
}

// --- without the lock ---

// The debtor ends: from now on, whatever other threads do comes after its frees.
void debtor_ends(void* /*of_this_key*/) {
  ThreadId me = this_thread_id();
  debtor.compare_exchange_strong(me, kEndedDebtor);
}

constinit pthread_key_t end_of_thread{};
constinit pthread_once_t key_made = PTHREAD_ONCE_INIT;
constinit bool have_key = false;

bool end_is_noticed() {
  pthread_once(&key_made, [] { have_key = pthread_key_create(&end_of_thread, debtor_ends) == 0; });
  return have_key && (pthread_getspecific(end_of_thread) != nullptr ||
                      pthread_setspecific(end_of_thread, &this_thread) == 0);
}

// The driver refused the events, and what this thread does next must come after the work. So this
// synchronises the contexts.
void synchronise_unrecorded(PaidBy who) {
  for_each_context([=](Context& context) {
    mutex.lock();
    const bool unrecorded = context.debt.state == State::unrecorded;
    mutex.unlock();
    CUcontext handle = context.handle.load();
    const ContextScope scope(unrecorded ? handle : nullptr);
    if (!unrecorded || !scope) return;
    const TimedWait timed(free_counts.paid_by(who));
    noted(driver().cuCtxSynchronize(), handle);
    const alloc::LockGuard lock(mutex);
    if (context.debt.state == State::unrecorded) context.debt.state = State::none;
  });
}

// Whether debts up to this record are left. Later debts do not count: other threads may close and
// pay them.
bool owes_until(uint64_t record) {
  return any_context([=](const Debt& d) { return d.state != State::none && d.since <= record; });
}

// Gives up after `limit_ns`, or after `covering_ns` if the debts turn out to cover others' work.
bool wait_until_paid(uint64_t record, uint64_t limit_ns, uint64_t covering_ns, PaidBy who) {
  std::optional<TimedWait> timed;
  const uint64_t start = alloc::os::now_ns();
  bool paid = false;
  const auto ends = [&] {
    if (!mutex.lock_within(kPatience)) return false;
    ask_debts();
    paid = !owes_until(record);
    mutex.unlock();
    if (!paid && limit_ns != 0 && !timed) timed.emplace(free_counts.paid_by(who));
    return paid || (covers_others.load() && alloc::os::now_ns() - start >= covering_ns);
  };
  alloc::os::wait_until(ends, limit_ns);
  return paid;
}

// How long a thread waits for work of another thread's debts. If it gave up on some work, it does
// not wait for that work again.
struct Patience {
  uint64_t ns;
  uint64_t given_up = 0;  // the last record of that work
};
constinit Patience with_work{kPatience};         // before a submission
constinit Patience with_release{1'000'000'000};  // before memory is released or shared

// The output of printf in kernels appears at a synchronisation, not when an event is queried (CUDA
// C++ Programming Guide, "Formatted output"). These events have passed, so this does not wait.
void bring_out_prints() {
  for_each_context([](Context& context) {
    const Visit visit(context);
    if (!visit.open() || !mutex.lock_within(kPatience)) return;
    const Debt& debt = context.debt;
    CUevent passed = debt.state == State::none && debt.prints_held ? debt.event : nullptr;
    mutex.unlock();
    if (passed == nullptr) return;
    const ContextScope scope(visit.handle());
    if (scope) noted(driver().cuEventSynchronize(passed), visit.handle());
  });
}

// Pays all debts. Whether everything was paid that was owed at the call.
bool pay(PaidBy who, Patience& patience, uint64_t own_patience_ns = UINT64_MAX) {
  if (!any_debts() || !active()) return true;
  const NoCancel in_hand;
  const alloc::CountedIn no_more(waiting);
  if (!mutex.lock_within(kPatience)) return false;
  const ThreadId thread = debtor.load();
  const bool own = thread == this_thread_id();
  const bool another = !own && (thread != kEndedDebtor || covers_others.load());
  close_open_debts();
  const uint64_t last = records;
  const bool in_vain = another && patience.given_up == last;
  mutex.unlock();
  std::optional<alloc::CountedIn> here;
  if (another && !in_vain && !this_thread.background) here.emplace(held_up);
  if (another) who = PaidBy::other_thread;
  if (!another && own_patience_ns == UINT64_MAX) synchronise_unrecorded(who);
  const uint64_t limit_ns = !another ? own_patience_ns : in_vain ? 0 : patience.ns;
  if (wait_until_paid(last, limit_ns, own ? UINT64_MAX : patience.ns, who)) return true;
  if (!own && mutex.lock_within(kPatience)) {
    patience.given_up = last;
    mutex.unlock();
  }
  return false;
}

// Waits for other threads' debts before a submission. Whether all were paid.
bool await_others() {
  const bool paid = pay(PaidBy::submission, with_work);
  if (!paid && others_debts()) leave_no_more_debts();
  return paid;
}

}  // namespace

bool debts_possible() { return why_never() == FreeWaitReason::none; }

FreeWaitReason why_no_debt(const Context& owner) {
  const FreeWaitReason never = why_never();
  return never != FreeWaitReason::none ? never : why_not_alone(owner.unfinished);
}

// The conditions are checked again once other threads can find the debt.
FreeWaitReason owe(Context& owner) {
  const auto why_not = [&] {
    const FreeWaitReason forbidden = why_forbidden(owner);
    return forbidden != FreeWaitReason::none ? forbidden : why_not_alone(owner.unfinished);
  };
  if (const FreeWaitReason why = why_not(); why != FreeWaitReason::none) return why;
  if (!end_is_noticed()) return FreeWaitReason::other;
  end_before_the_driver();
  const alloc::LockGuard lock(mutex);
  if (others_debts()) return FreeWaitReason::several_threads;
  if (!has_event(owner.debt, owner.handle.load())) return FreeWaitReason::other;
  const ThreadId me = this_thread_id();
  debtor.store(me, std::memory_order_seq_cst);
  const bool another = owner.debt.open_for.exchange(me, std::memory_order_seq_cst) != me;
  submissions_are_not_quiet();
  const FreeWaitReason why = why_not();
  if (why != FreeWaitReason::none) {
    // A debt of an earlier free stays: the memory of that free may be another thread's by now.
    if (another) owner.debt.open_for.store(0, std::memory_order_seq_cst);
    end_if_paid();
  } else if (another) {
    free_counts.debts.add();
  }
  return why;
}

bool order_behind_debts(CUstream stream) {
  if (others_debts()) return await_others();
  const NoCancel in_hand;
  mutex.lock();
  // Another thread may have become the debtor meanwhile. No stream waits for that thread's work.
  const bool own = !others_debts();
  if (own) close_open_debts();
  const bool behind = own && put_behind(stream);
  mutex.unlock();
  if (!own) return await_others();
  if (!behind) pay_debts(PaidBy::submission);
  return false;
}

// Only a debt of the calling thread's context can cover its work.
void others_debts_may_cover_work() {
  if (!active()) return;
  const Context* here = current_context();
  const NoCancel in_hand;
  const bool locked = mutex.lock_within(kPatience);
  const bool owed = !locked || here == nullptr || here->debt.open_for.load() != 0 ||
                    here->debt.state != State::none;
  if (owed && others_debts()) covers_others.store(true);
  if (locked) mutex.unlock();
}

void leave_no_more_debts() { waited_in_vain.store(true); }

bool pay_debts(PaidBy who) {
  const bool paid = pay(who, with_work);
  if (!paid && others_debts()) leave_no_more_debts();
  return paid && !any_debts();
}

bool pay_for_release() { return pay(PaidBy::release, with_release); }

bool owes_now() {
  if (!any_debts() || !active()) return false;
  if (others_debts() || !mutex.lock_within(kPatience)) return true;
  close_open_debts();
  ask_debts();
  mutex.unlock();
  return any_debts();
}

uint64_t last_debt() {
  if (!any_debts() || !mutex.lock_within(kPatience)) return 0;
  const uint64_t last = records;
  mutex.unlock();
  return last;
}

void paid_by_synchronisation(Context& context, uint64_t last) {
  if (!any_debts() || !mutex.lock_within(kPatience)) return;
  Debt& debt = context.debt;
  // Ends only this thread's debt. Another thread's debt may have begun meanwhile, by work that the
  // synchronisation did not cover.
  ThreadId me = this_thread_id();
  debt.open_for.compare_exchange_strong(me, 0, std::memory_order_seq_cst);
  if (debt.number <= last) {
    debt.state = State::none;
    debt.prints_held = false;
  }
  end_if_paid();
  mutex.unlock();
}

void forget_waits_of(CUstream stream) {
  if (!mutex.lock_within(1'000'000)) return waits_are_stale.store(true);
  for (Wait& wait : waits) {
    if (wait.stream == stream) wait = {};
  }
  mutex.unlock();
}

void debt_of_context_gone(Context& context) {
  const alloc::LockGuard lock(mutex);
  Debt& debt = context.debt;
  debt.open_for.store(0, std::memory_order_seq_cst);
  debt.state = State::none;
  debt.prints_held = false;
  debt.event = nullptr;
  forget_waits();
  end_if_paid();
}

// From now on, frees of exit handlers and destructors wait as the driver's frees do. If another
// thread is the debtor, this does not wait: with the driver alone, that thread's free would not
// have held this thread up. A signal handler that calls exit() may have interrupted the thread that
// holds the lock.
void pay_debts_at_exit() {
  constexpr uint64_t kLockNs = 100'000'000;
  process_ends.store(true);
  const bool others = others_debts() && debtor.load() != kEndedDebtor;
  if (!active() || others || !mutex.lock_within(kLockNs)) return;
  mutex.unlock();
  if (pay(PaidBy::exit, with_work, kPatience)) bring_out_prints();
}

void reset_debts_after_fork() {
  mutex.reset();
  waiting.store(0);
  held_up.store(0);
  debtor.store(0);
  covers_others.store(false);
  forget_waits();
  for_each_context([](Context& context) {
    context.debt.open_for.store(0);
    context.debt.state = State::none;
  });
}

}  // namespace cistern::shim
