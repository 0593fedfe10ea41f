// SPDX-License-Identifier: Apache-2.0
#include "shim/order/barrier/debts.h"

#include <algorithm>
#include <optional>

#include "allocator/base/mutex.h"
#include "allocator/base/os.h"
#include "shim/entry/driver.h"
#include "shim/order/ask.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/captures/let_by_captures.h"
#include "shim/order/careful.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/visit.h"
#include "shim/order/shared.h"
#include "shim/order/streams/events.h"
#include "shim/order/streams/streams.h"
#include "shim/order/suspicion.h"
#include "shim/order/ties.h"
#include "shim/process/background.h"
#include "shim/process/settings.h"

namespace cistern::shim {

constinit std::atomic<ThreadId> debtor{0};

namespace {

using State = Debt::State;

constexpr uint64_t kPatience = 1'000'000'000;

constinit alloc::Mutex mutex;  // held for all below, and for each context's Debt but open_for
constinit uint64_t records = 0;

// Streams of the debtor that wait for everything up to a record. One that is left out waits again.
struct Wait {
  CUstream stream;
  CUcontext context;  // whose default stream it is; nullptr: a stream of its own
  uint64_t record;
};
constexpr size_t kWaits = 32;
constinit Wait waits[kWaits] = {};
constinit size_t next_wait = 0;
constinit unsigned submissions_behind = 0;

bool debts_possible() {
  return policy().free_sync == config::FreeSync::kAuto && driver().cuCtxRecordEvent != nullptr &&
         alloc::fill_mode(policy()) == alloc::FillMode::off;
}

// What forbids a debt. Whoever changes one of these pays what is owed afterwards.
bool forbidden(const Context& owner) {
  const alloc::Reclaim& reclaim = shared().reclaim;
  return capture_gate().capturing() || any_peer_access() || reclaim.frozen() || careful() ||
         owner.source.closing() || owner.careful.load() || shared().reclaim.tied(owner.number);
}

bool has_event(Debt& debt, CUcontext handle) {
  if (debt.event != nullptr) return true;
  const ContextScope scope(handle);
  if (!scope || !create_event(&debt.event)) debt.event = nullptr;
  return debt.event != nullptr;
}

// With the lock.
bool is_open(const Debt& debt) { return debt.open_for.load(std::memory_order_relaxed) != 0; }

template <typename Holds>
bool any_context(Holds holds) {
  bool any = false;
  for_each_context([&](Context& context) { any |= holds(context.debt); });
  return any;
}

void end_if_paid() {
  const bool owed = any_context([](const Debt& d) { return is_open(d) || d.state != State::none; });
  if (!owed) debtor.store(0, std::memory_order_seq_cst);
}

// An open debt is closed before its event is recorded: a free that still found it open comes after
// work that the event covers.
void close_open_debts() {
  const LetByCaptures allowed;
  for_each_context([&](Context& context) {
    Debt& debt = context.debt;
    if (debt.open_for.exchange(0, std::memory_order_seq_cst) == 0) return;
    const Visit visit(context);
    if (!visit.open()) return;  // who ends it waits for its work
    const CUresult recorded =
        noted(driver().cuCtxRecordEvent(visit.handle(), debt.event), visit.handle());
    debt.state = recorded == CUDA_SUCCESS ? State::recorded : State::unrecorded;
    debt.number = ++records;
  });
}

// Work that failed is over.
void ask_debts() {
  const LetByCaptures allowed;
  for_each_context([&](Context& context) {
    Debt& debt = context.debt;
    if (debt.state != State::recorded) return;
    const Visit visit(context);
    if (!visit.open()) return;
    if (state_of(debt.event, visit.handle()) != alloc::MarkState::pending) debt.state = State::none;
  });
  end_if_paid();
}

// The debtor: nobody else makes a debt, or records an event again, meanwhile.
void wait_for_debt(Context& context) {
  std::optional<alloc::LockGuard> lock(mutex);
  Debt& debt = context.debt;
  const State state = debt.state;
  CUevent event = debt.event;
  CUcontext handle = context.handle.load();
  lock.reset();
  if (state == State::none || handle == nullptr) return;
  if (state == State::recorded) {
    noted(driver().cuEventSynchronize(event), handle);
  } else if (const ContextScope scope(handle); scope) {
    noted(driver().cuCtxSynchronize(), handle);
  }
  lock.emplace(mutex);
  if (debt.event == event) debt.state = State::none;
}

bool paid_within(uint64_t limit_ns) {
  const auto paid = [] {
    const alloc::LockGuard lock(mutex);
    ask_debts();
    return !any_debts();
  };
  return alloc::os::wait_until(paid, limit_ns);
}

bool pay(uint64_t patience_of_others) {
  if (!any_debts()) return true;
  const NoCancel in_hand;
  if (!mutex.lock_within(kPatience)) return false;
  const bool others = others_debts();
  close_open_debts();
  mutex.unlock();
  if (others) return paid_within(patience_of_others);
  for_each_context(wait_for_debt);
  const alloc::LockGuard lock(mutex);
  end_if_paid();
  return !any_debts();
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

// The stream captures: what is captured is no work yet, and comes behind when it is launched.
bool is_captured(CUstream stream) {
  return capture_gate().capturing() && capture_gate().capturing(stream);
}

bool make_wait(CUstream stream) {
  bool all = true;
  for_each_context([&](Context& context) {
    if (context.debt.state != State::recorded) return;
    all = all && ask(driver().cuStreamWaitEvent, stream, context.debt.event, 0U) == CUDA_SUCCESS;
  });
  return all;
}

void note_wait(CUstream stream, CUcontext context) {
  Wait* wait = find_wait(stream, context);
  if (wait == nullptr) wait = &waits[next_wait++ % kWaits];
  *wait = {stream, context, records};
}

// False: the host has to wait. With the lock.
bool put_behind(CUstream stream) {
  constexpr unsigned kAskEvery = 16;
  CUcontext context = owner_of_default(stream);
  const Wait* wait = find_wait(stream, context);
  if (wait != nullptr && wait->record == records) {
    if (++submissions_behind % kAskEvery == 0) ask_debts();
    return true;
  }
  if (any_context([](const Debt& d) { return d.state == State::unrecorded; })) return false;
  if (is_captured(stream)) return true;
  if (!make_wait(stream)) return false;
  note_wait(stream, context);
  return true;
}

}  // namespace

bool owe(Context& owner) {
  const ThreadId me = this_thread_id();
  if (!debts_possible() || !owner.unfinished.only_of(me) || forbidden(owner)) return false;
  const alloc::LockGuard lock(mutex);
  if (others_debts() || !has_event(owner.debt, owner.handle.load())) return false;
  debtor.store(me, std::memory_order_seq_cst);
  owner.debt.open_for.store(me, std::memory_order_seq_cst);
  if (!forbidden(owner) && owner.unfinished.only_of(me)) return true;
  owner.debt.open_for.store(0, std::memory_order_seq_cst);
  end_if_paid();
  return false;
}

void order_behind_debts(CUstream stream) {
  if (others_debts()) {
    pay_debts();
    return;
  }
  const NoCancel in_hand;
  mutex.lock();
  close_open_debts();
  const bool behind = put_behind(stream);
  mutex.unlock();
  if (!behind) pay_debts();
}

bool pay_debts() { return pay(kPatience); }
bool pay_own_debts() { return pay(0); }

DebtMoment debt_moment() {
  if (!any_debts()) return {0, false};
  const alloc::LockGuard lock(mutex);
  return {records, !others_debts()};
}

void paid_by_synchronisation(Context& context, DebtMoment start) {
  if (!any_debts()) return;
  const alloc::LockGuard lock(mutex);
  Debt& debt = context.debt;
  if (start.own) debt.open_for.store(0, std::memory_order_seq_cst);
  if (debt.number <= start.number) debt.state = State::none;
  end_if_paid();
}

void forget_waits_of(CUstream stream) {
  const alloc::LockGuard lock(mutex);
  for (Wait& wait : waits) {
    if (wait.stream == stream) wait = {};
  }
}

void debt_of_context_gone(Context& context) {
  const alloc::LockGuard lock(mutex);
  Debt& debt = context.debt;
  debt.open_for.store(0, std::memory_order_seq_cst);
  debt.state = State::none;
  debt.event = nullptr;
  std::fill_n(waits, kWaits, Wait{});
  end_if_paid();
}

void reset_debts_after_fork() { mutex.reset(); }

}  // namespace cistern::shim
