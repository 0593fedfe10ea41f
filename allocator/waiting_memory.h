// SPDX-License-Identifier: Apache-2.0
// What was freed in one context and waits for earlier work: asks whether that work is done, makes
// sure that it will be known (by a mark, see reclaim.h), and waits for it, always for a bounded
// time. Every wait is counted in the ledger.
//
// Any thread; no lock is held while the source is called. Where a mark cannot be made (during a
// capture, say) what waits goes on waiting, and the caller finds other memory.
#pragma once

#include "allocator/base/os.h"
#include "allocator/context_memory.h"

namespace cistern::alloc {

class WaitingMemory {
 public:
  void init(ContextMemory* memory);

  // Asks what became clean. What still waits gets one mark for all frees since the last one, so
  // that it will.
  enum class Asked : uint8_t { nothing_waits, nothing_new, some_clean };
  Asked ask();

  // Waits until something becomes clean, for `limit_ns` at most (the default: what an allocation
  // waits while too_much()); false if nothing did.
  static constexpr uint64_t kUsualWaitNs = 10'000'000;
  bool wait(uint64_t limit_ns = kUsualWaitNs);

  // A host that runs ahead of the device must not make the pools grow without bound.
  bool too_much() const;

  // With enough waiting for a request of `bytes`: tries `take()` whenever something became clean,
  // for as long as a driver call takes lately. True once it succeeded.
  template <typename Take>
  bool take_while_obtain_would_last(uint64_t bytes, Take take) {
    if (memory_->waiting_bytes() < bytes) return false;
    const CountedWait counted(memory_->ledger);
    const uint64_t limit = obtain_ns();
    bool taken = false;
    while (!taken && counted.ns() < limit) taken = memory_->shared->reclaim.poll() && take();
    return taken;
  }

  // A whole chunk of `bytes` was freed.
  void note_freed(uint64_t bytes) { freed_unmarked_.add(bytes); }
  // Where many such bytes wait, marks the work so far: what is launched later must not hold them
  // back. Less is marked by the next allocation that misses.
  void mark_if_much() {
    if (freed_unmarked_.get() < kUnmarkedBudget) return;
    if (memory_->supply.cache.waiting_bytes() < kUnmarkedBudget) return;
    mark_beyond_budget();
  }

 private:
  // With more than this freed and waiting, a free marks the work so far.
  static constexpr uint64_t kUnmarkedBudget = uint64_t{8} << 20;
  static constexpr uint64_t kUnmarkedShare = 32;  // or this part of what was taken from the driver

  // A wait that the ledger counts.
  class CountedWait {
   public:
    explicit CountedWait(Ledger* ledger) : ledger_(ledger), start_(os::now_ns()) {}
    ~CountedWait() {
      ledger_->waits.add();
      ledger_->wait_ns.add(ns());
    }
    CountedWait(const CountedWait&) = delete;
    CountedWait& operator=(const CountedWait&) = delete;
    uint64_t ns() const { return os::now_ns() - start_; }

   private:
    Ledger* ledger_;
    uint64_t start_;
  };

  uint64_t obtain_ns() const;
  [[gnu::noinline]] void mark_beyond_budget();

  ContextMemory* memory_;
  Counter freed_unmarked_;  // bytes of whole blocks freed since the last mark made by a free
};

}  // namespace cistern::alloc
