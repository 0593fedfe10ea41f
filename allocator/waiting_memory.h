// SPDX-License-Identifier: Apache-2.0
// The freed memory of one context that waits for earlier work. This class asks whether that work is
// done, sets a mark to learn it (reclaim.h), and waits for it, always for a bounded time. Every
// wait is counted in the ledger.
//
// Who waits, and for how long:
//   a free        that carries what waits past the bound: until it is within it again (hold_back())
//   an allocation that misses: no longer than a driver call takes that it may save
//   a shortage    until the work before the frees is done (shortage.h)
// A submission waits for no work; before it goes on, the frees so far are marked, so that their
// mark covers the work before them and nothing later.
//
// Any thread; no lock is held while the source is called. If no mark can be made, for example
// during a capture, the memory continues to wait, and the caller finds other memory.
#pragma once

#include <algorithm>
#include <atomic>

#include "allocator/base/os.h"
#include "allocator/base/threads.h"
#include "allocator/context_memory.h"

namespace cistern::alloc {

class WaitingMemory {
 public:
  void init(ContextMemory* memory);

  // Asks what became clean. If some memory still waits, makes one mark for all frees since the last
  // mark, so that it will become clean.
  enum class Asked : uint8_t { nothing_waits, nothing_new, some_clean };
  Asked ask();

  // Waits until something becomes clean, for `limit_ns` at most; false if nothing did.
  bool wait(uint64_t limit_ns);

  // Call it before the program hands work to the device: marks the frees so far, if that is due.
  // `at_once`: even if it is not due, because the work may never end without the host. True if some
  // frees stay unmarked.
  bool before_submission(bool at_once);
  // As before_submission(), but in a free, for sources that can make marks only there.
  void mark_if_due();

  // A request met a shortage: for a while no free stays unmarked before a submission.
  void note_shortage() { short_at_ns_.store(os::now_ns(), std::memory_order_relaxed); }
  bool short_lately() const {
    constexpr uint64_t kLatelyNs = 1'000'000'000;
    return os::now_ns() - short_at_ns_.load(std::memory_order_relaxed) < kLatelyNs;
  }

  // The program is about to wait for the context.
  void before_synchronise();

  // In a free. A host that runs ahead of the device must not make the pools grow without bound:
  // with more than Reclaim::kWaitingBound waiting, or a tenth of what is live, a free waits for the
  // oldest work. If nothing ends for a second, the bound gives way until something does. Above half
  // the bound, a free lets the threads that are held back go on first: otherwise one thread could
  // take all the room that becomes free, and the others would wait for what it freed.
  void hold_back_if_over_bound() {
    const uint64_t waiting = memory_->waiting_bytes();
    memory_->ledger->live_and_waiting_peak.raise_to(memory_->ledger->live.get() + waiting);
    if (waiting > bound()) {
      hold_back();
    } else if (waiting > bound() / 2 && held_back_.now() != 0) {
      held_back_.await(Deadlines::kMoment);
    }
  }

  // If at least `bytes` are waiting: calls `take()` each time something becomes clean, until it
  // succeeds or for as long as a driver call takes. True if it succeeded.
  template <typename Take>
  bool take_while_obtain_would_last(uint64_t bytes, Take take) {
    if (memory_->waiting_bytes() < bytes) return false;
    const CountedWait counted(memory_->ledger);
    const uint64_t limit = std::min(memory_->supply.obtain_ns(), Deadlines::kMoment);
    bool taken = false;
    for (uint64_t ns = 0; !taken && ns < limit; ns = counted.ns()) {
      taken = wait_for_next(limit - ns) && take();
    }
    return taken;
  }

 private:
  // A wait that the ledger counts.
  class CountedWait {
   public:
    explicit CountedWait(Ledger* ledger) : CountedWait(ledger->waits, ledger->wait_ns) {}
    CountedWait(Counter& times, Counter& ns_of_all)
        : times_(times), ns_of_all_(ns_of_all), start_(os::now_ns()) {}
    ~CountedWait() {
      times_.add();
      ns_of_all_.add(ns());
    }
    CountedWait(const CountedWait&) = delete;
    CountedWait& operator=(const CountedWait&) = delete;
    uint64_t ns() const { return os::now_ns() - start_; }

   private:
    Counter& times_;
    Counter& ns_of_all_;
    uint64_t start_;
  };

  uint64_t bound() const;
  bool memory_is_nearly_out() const;
  [[gnu::noinline]] void hold_back();
  bool wait_for_next(uint64_t limit_ns);
  bool wait_for_oldest(uint64_t limit_ns);
  bool due();
  bool mark_freed();

  ContextMemory* memory_;
  std::atomic<uint64_t> marked_at_ns_;   // when frees were marked last
  std::atomic<uint64_t> queued_marked_;  // the context's queued_bytes() then
  std::atomic<uint64_t> short_at_ns_;    // the last shortage
  std::atomic<Ticket> gave_way_at_;      // Reclaim::clean() when the bound gave way
  Movers held_back_;                     // threads in hold_back()
};

}  // namespace cistern::alloc
