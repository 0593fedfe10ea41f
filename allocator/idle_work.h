// SPDX-License-Identifier: Apache-2.0
// The work that can wait, for one context. Idle memory beyond the budget goes back to the driver.
// With FLAGS_free_idle_memory, memory that was idle for the delay goes back too (idle_release.h).
// With FLAGS_eager_delete_scope=false, the work of frees is deferred until an allocation misses.
//
// Calls of the program do it: before they obtain more memory, if that needs no wait, and after a
// synchronisation. The background thread does the rest: the first free that leaves more idle memory
// than the floor asks the source for that thread, which then calls in_background() from time to
// time. Without such a thread, or if its release would have to wait, frees do the work, since they
// may wait for the device anyway.
//
// Any thread may call anything; if several sweep at once, one does it and the others go on. No lock
// is held while the source is called. Nothing here fails: memory that the source does not take now
// stays.
#pragma once

#include "allocator/context_memory.h"
#include "allocator/waiting_memory.h"

namespace cistern::alloc {

class IdleWork {
 public:
  void init(ContextMemory* memory, WaitingMemory* waiting);

  // Whether a free should look for something to do: a few loads.
  bool due(const ChunkCache& cache) const {
    return cache.idle_or_parked_bytes() + cache.waiting_bytes() >= from_bytes_ ||
           cache.any_refused();
  }
  // In a free, if due().
  void after_free();

  // After a synchronisation, when the driver's free will not wait again.
  void after_synchronise();

  // For the background thread. True if there will be more to do.
  bool in_background();

  // Whether the work of frees is deferred in this process, and whether some was deferred and is not
  // done yet.
  bool defers() const { return defers_; }
  bool any_deferred() const { return deferred_.load(std::memory_order_relaxed); }
  // In an allocation that misses, which must not wait for the device.
  void before_miss();
  // In an allocation that is about to obtain `bytes`. Does not wait.
  void before_obtain(uint64_t bytes) {
    if (due(memory_->supply.cache)) memory_->release_excess_before(bytes);
  }

  // The context is gone, and its idle memory with it.
  void forget_all() { publish_idle(0, kNotSeen); }

 private:
  bool tended();
  void defer();
  void do_deferred(WorkedBy worked_by);
  void sweep_if_due();
  void sweep(WorkedBy worked_by);
  void release_aged(Tick now, WorkedBy worked_by);
  // Whether an idle chunk of age `least` or more went. too_much: each is larger than the `most`
  // bytes that may go, or another thread has just taken it.
  enum class Went : uint8_t { yes, too_much, not_now };
  Went release_one_aged(Tick now, uint32_t least, uint64_t most, WorkedBy worked_by);
  bool some_may_age(Tick now) const;
  void note_aged(uint64_t bytes, WorkedBy worked_by);
  void publish_idle(uint64_t bytes, Tick now);

  ContextMemory* memory_;
  WaitingMemory* waiting_;
  uint64_t from_bytes_;  // with fewer bytes idle, parked or waiting there is no work
  bool defers_;
  std::atomic<bool> tended_{false};  // the background thread will look
  std::atomic<bool> deferred_{false};
  std::atomic<bool> sweeping_{false};
  std::atomic<Tick> swept_{kNotSeen};        // the tick of the last sweep
  std::atomic<Tick> changed_{kNotSeen};      // when the number of idle bytes last changed
  std::atomic<uint64_t> stays_{0};           // idle bytes of the device when none could go
  std::atomic<uint64_t> idle_published_{0};  // this context's part of Ledger::idle_chunks
};

}  // namespace cistern::alloc
