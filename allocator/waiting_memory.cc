// SPDX-License-Identifier: Apache-2.0
#include "allocator/waiting_memory.h"

#include <algorithm>

namespace cistern::alloc {
namespace {

constexpr uint64_t kBoundShare = 10;  // or a tenth of what is live
constexpr uint64_t kBoundPatienceNs = 1'000'000'000;

// Frees are marked once this much was freed, or this part of what was taken from the source, or so
// long after the last mark: a loop of short launches must not pay for a mark with each.
constexpr uint64_t kMuchFreed = uint64_t{8} << 20;
constexpr uint64_t kMuchFreedShare = 32;
constexpr uint64_t kMarkEveryNs = 100'000;

// Memory is nearly out once all but this part is live or waits, or for some time after a shortage.
constexpr uint64_t kNearlyOutShare = 8;

}  // namespace

void WaitingMemory::init(ContextMemory* memory) {
  memory_ = memory;
  marked_at_ns_.store(0, std::memory_order_relaxed);
  queued_marked_.store(0, std::memory_order_relaxed);
  short_at_ns_.store(0, std::memory_order_relaxed);
  gave_way_at_.store(~Ticket{0}, std::memory_order_relaxed);
}

WaitingMemory::Asked WaitingMemory::ask() {
  Reclaim& reclaim = memory_->shared->reclaim;
  const uint32_t context = memory_->party;
  const Ticket before = reclaim.clean(context);
  Ticket newest;
  if (!memory_->newest_waiting(&newest)) return Asked::nothing_waits;
  if (newest <= before) return Asked::nothing_new;
  reclaim.poll(context);
  if (reclaim.clean(context) < newest) reclaim.mark(context, newest, /*at_once=*/true);
  return reclaim.clean(context) != before ? Asked::some_clean : Asked::nothing_new;
}

// --- marks ---

bool WaitingMemory::before_submission(bool at_once) {
  Reclaim& reclaim = memory_->shared->reclaim;
  if (!reclaim.unmarked(memory_->party)) return false;
  if (memory_->source->marks_anywhere() && (at_once || due()) && mark_freed()) return false;
  reclaim.unmarked_is_late(memory_->party);
  return true;
}

void WaitingMemory::mark_if_due() {
  if (memory_->shared->reclaim.unmarked(memory_->party) && due()) mark_freed();
}

// If memory is nearly out, freed memory may be needed soon, whatever work goes on by then.
bool WaitingMemory::memory_is_nearly_out() const {
  const uint64_t all = memory_->source->memory_bytes();
  const uint64_t wanted = memory_->ledger->live.get() + memory_->waiting_bytes();
  return all != 0 && wanted >= all - all / kNearlyOutShare;
}

bool WaitingMemory::due() {
  const uint64_t now = os::now_ns();
  if (now - marked_at_ns_.load(std::memory_order_relaxed) >= kMarkEveryNs) return true;
  if (short_lately()) return true;
  if (memory_is_nearly_out()) return true;
  const uint64_t much = std::max(kMuchFreed, memory_->ledger->reserved.get() / kMuchFreedShare);
  const uint64_t marked = queued_marked_.load(std::memory_order_relaxed);
  // Another thread may have marked more than this one sees queued.
  const auto since = static_cast<int64_t>(memory_->queued_bytes() - marked);
  return since >= static_cast<int64_t>(much) && memory_->waiting_bytes() >= much;
}

bool WaitingMemory::mark_freed() {
  const uint64_t queued = memory_->queued_bytes();
  if (!memory_->shared->reclaim.mark_freed(memory_->party)) return false;
  marked_at_ns_.store(os::now_ns(), std::memory_order_relaxed);
  queued_marked_.store(queued, std::memory_order_relaxed);
  return true;
}

// Unmarked frees need no mark here: no work was handed over after them, so the synchronisation
// covers them.
void WaitingMemory::before_synchronise() {
  Reclaim& reclaim = memory_->shared->reclaim;
  if (reclaim.any_outstanding(memory_->party)) reclaim.poll(memory_->party);
}

// --- waits ---

bool WaitingMemory::wait_for_next(uint64_t limit_ns) {
  Reclaim& reclaim = memory_->shared->reclaim;
  const uint32_t context = memory_->party;
  return reclaim.wait(context, reclaim.clean(context) + 1, limit_ns);
}

// If no mark can be made now, one may be possible a little later.
bool WaitingMemory::wait_for_oldest(uint64_t limit_ns) {
  constexpr uint64_t kUnmarkedNs = 1'000'000;
  Reclaim& reclaim = memory_->shared->reclaim;
  const uint32_t context = memory_->party;
  const Ticket before = reclaim.clean(context);
  const uint64_t start = os::now_ns();
  while (!reclaim.frozen()) {
    Ticket oldest, newest;
    if (!memory_->waiting_range(&oldest, &newest) || newest <= before) return false;
    const bool marked = reclaim.mark(context, newest);
    const uint64_t waited = std::min(os::now_ns() - start, limit_ns);
    const uint64_t left = limit_ns - waited;
    const uint64_t slice = marked ? left : std::min(left, kUnmarkedNs);
    if (reclaim.wait(context, std::max(oldest, before + 1), slice)) return true;
    if (slice == left || memory_->source->refuses_release()) return false;
  }
  return false;
}

bool WaitingMemory::wait(uint64_t limit_ns) {
  const CountedWait counted(memory_->ledger);
  if (wait_for_oldest(memory_->patience(limit_ns))) return true;
  memory_->note_stuck(counted.ns());
  return false;
}

// --- the bound ---

uint64_t WaitingMemory::bound() const {
  return std::max(Reclaim::kWaitingBound, memory_->ledger->live.get() / kBoundShare);
}

// Several threads may be held back at once; memory that becomes clean lets all of them go on. Frees
// of other threads meanwhile hold back those threads, not the ones that are already here.
void WaitingMemory::hold_back() {
  const Reclaim& reclaim = memory_->shared->reclaim;
  const Movers::Moving held(held_back_);
  ask();
  Ticket newest;
  if (!memory_->newest_waiting(&newest)) return;
  const Ticket clean = reclaim.clean(memory_->party);
  memory_->refresh(/*spare_too=*/false);
  if (clean == gave_way_at_.load(std::memory_order_relaxed)) return;
  if (memory_->waiting_bytes() <= bound()) return;
  const CountedWait counted(memory_->ledger->held_back, memory_->ledger->held_back_ns);
  while (memory_->waiting_bytes() > bound() && reclaim.clean(memory_->party) < newest &&
         !memory_->source->refuses_release()) {
    if (!wait(kBoundPatienceNs)) {
      const Ticket stuck = reclaim.clean(memory_->party);
      if (gave_way_at_.exchange(stuck) != stuck) memory_->ledger->bound_gave_way.add();
      return;
    }
    memory_->refresh(/*spare_too=*/false);
  }
}

}  // namespace cistern::alloc
