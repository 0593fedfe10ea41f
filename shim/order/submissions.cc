// SPDX-License-Identifier: Apache-2.0
#include "shim/order/submissions.h"

#include "allocator/base/mutex.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/careful.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/pinned_pools.h"
#include "shim/process/settings.h"

namespace cistern::shim {

constinit std::atomic<uintptr_t> last_submitter{0};
constinit std::atomic<uintptr_t> quiet_submitter{4};

namespace {

constinit alloc::Mutex mutex;  // held while what is known of unfinished work changes
constinit std::atomic<uintptr_t> times_cleared{0};

// Of quiet_submitter: no thread's address, nor kSeveral.
static_assert(alignof(Thread) >= 8);
constexpr uintptr_t nobody(uintptr_t time) { return time << 3 | 4; }

// What another submission need not tell again: it is the same in all contexts.
uintptr_t known_of_all() {
  uintptr_t known = Unfinished::kSeveral, visible = Unfinished::kVisible;
  for_each_context([&](const Context& context) {
    const uintptr_t state = context.unfinished.state();
    if (state == Unfinished::kSeveral) return;
    known = state & ~Unfinished::kVisible;
    visible &= state;
  });
  return known == Unfinished::kSeveral ? known : known | visible;
}

// With the lock.
void look_if_quiet(ThreadId thread) {
  uintptr_t before = quiet_submitter.load(std::memory_order_seq_cst);
  const uintptr_t last = last_submitter.load(std::memory_order_seq_cst);
  const bool by_all = last == Unfinished::kSeveral;
  if (!by_all && (last & ~Unfinished::kVisible) != thread) return;
  if (contexts_seen_empty.load(std::memory_order_seq_cst) != 0 || any_debts()) return;
  if (!by_all && may_be_visible()) return;
  quiet_submitter.compare_exchange_strong(before, by_all ? last : thread,
                                          std::memory_order_seq_cst);
}

}  // namespace

void submissions_are_not_quiet() {
  quiet_submitter.store(nobody(times_cleared.fetch_add(1) + 1), std::memory_order_seq_cst);
}

// Which context it concerns would cost each submission a question: it counts for all.
void note_first_submission(bool visible) {
  if (!active()) return;
  current_context();  // one that no hook saw made is noticed here
  const ThreadId thread = this_thread_id();
  const alloc::LockGuard guard(mutex);
  last_submitter.store(0, std::memory_order_seq_cst);  // nobody's is known while it changes
  end_seen_empty([=](Context& context, bool was_empty) {
    was_empty ? context.unfinished.begin(thread, visible) : context.unfinished.add(thread, visible);
  });
  last_submitter.store(
      policy().free_sync == config::FreeSync::kFalse ? Unfinished::kSeveral : known_of_all(),
      std::memory_order_seq_cst);
  look_if_quiet(thread);
}

// With the lock, since all threads are told: the work of one thread may begin meanwhile.
void quieten() {
  const ThreadId thread = this_thread_id();
  const uintptr_t last = last_submitter.load(std::memory_order_relaxed);
  const bool by_all = last == Unfinished::kSeveral;
  if (any_debts() || (!by_all && (last & ~Unfinished::kVisible) != thread)) return;
  const alloc::LockGuard guard(mutex);
  look_if_quiet(thread);
}

void next_submission_looks() {
  const alloc::LockGuard guard(mutex);
  last_submitter.store(0, std::memory_order_seq_cst);
  submissions_are_not_quiet();
}

void forget_submitters() {
  const alloc::LockGuard guard(mutex);
  for_each_context([](Context& context) { context.unfinished.reset(); });
  last_submitter.store(0, std::memory_order_seq_cst);
  submissions_are_not_quiet();
}

void reset_submissions_after_fork() { mutex.reset(); }

// The flag stays set while threads are at work here,
// so that none of them passes before the marks are made. A free that comes after the last look at
// its context finds the flag set, or is seen by the look after it was cleared.
void mark_frees_before_submission(bool may_wait_for_host) {
  if (!active()) return;
  // Nothing is marked any more, nor becomes clean. Another free sets the flag again.
  if (careful()) return shared().reclaim.set_any_unmarked(false);
  current_context();  // one that no hook saw made is noticed here
  bool left = false;
  for_each_context([&](Context& context) {
    const Visit visit(context);
    if (visit.open()) left |= context.pool.before_submission(may_wait_for_host);
  });
  if (pinned_frees_unmarked()) {
    for_each_pinned_pool([&](PinnedPool& pinned) {
      const PinnedVisit visit(pinned);
      if (visit.open()) left |= pinned.pool.before_submission(may_wait_for_host);
    });
  }
  if (left) return;
  alloc::Reclaim& reclaim = shared().reclaim;
  reclaim.set_any_unmarked(false);
  for_each_context([&](const Context& context) {
    if (reclaim.unmarked(context.number)) reclaim.set_any_unmarked(true);
  });
  if (pinned_frees_unmarked()) reclaim.set_any_unmarked(true);
}

}  // namespace cistern::shim
