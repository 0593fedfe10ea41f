// SPDX-License-Identifier: Apache-2.0
// All the memory of one context: its chunk layer (chunk_supply.h) and its strategy
// (any_strategy.h), with what concerns both of them: a request's way into each, the ways back to
// the source, and sums. ContextPool owns it and decides when which way is taken; IdleWork and
// Shortage use it, too.
//
// Any thread may call anything. No lock is held while the source is called.
#pragma once

#include "allocator/any_strategy.h"
#include "allocator/chunk/chunk_supply.h"

namespace cistern::alloc {

// Where the memory of a pool is; parts may be a moment apart.
struct Usage {
  uint64_t live, idle, waiting, parked, garbage, quarantined;

  Usage& operator+=(const Usage& other) {
    live += other.live;
    idle += other.idle;
    waiting += other.waiting;
    parked += other.parked;
    garbage += other.garbage;
    quarantined += other.quarantined;
    return *this;
  }
};

struct ContextMemory {
  void init(Shared* shared_state, MemorySource* memory_source, const DeviceParts& device,
            uint32_t number, const ChunkSizes& sizes);

  // Serve a request: from clean memory at hand; from a fresh chunk; with a driver allocation of its
  // own; from any free block, wherever it is. The codes are the source's.
  bool take_clean(Request& request) {
    return strategy.visit([&](auto& s) { return s.take_clean(request); });
  }
  int take_fresh(Request& request);
  int obtain_direct(Request& request);
  bool take_from_anywhere(Request& request, Step* step);

  // A request was served with a chunk of its own.
  void count_whole(uint64_t bytes);

  // What became clean since is idle from now on, merged with its neighbours; with `spare_too` no
  // empty slab stays one. Where fills are gathered nothing is clean before it is filled.
  void refresh(bool spare_too);

  // To the source, from little to all. Excess: what is idle beyond the strategy's budget; its clean
  // part goes without a wait for the device, where the source can do that. Clean: everything that
  // no earlier work can touch. Everything: whatever the program does not hold. False: nothing went.
  void release_excess();
  void release_excess_if_over_budget();
  void release_clean_excess();
  bool release_clean();
  bool release_everything();

  // Garbage, if this context may have any, begins to wait as every freed block does.
  void flush_garbage();                    // of the whole device: memory is short
  void flush_synchronised(Ticket ticket);  // of this context: it was waited for

  // The context is gone: forgets everything without a call to the source. Threads that have taken
  // something out are waited for.
  void forget_all();

  // Sums over the chunk layer and the strategy's pools.
  Usage usage() const;
  uint64_t waiting_bytes() const;
  bool waiting_range(Ticket* oldest, Ticket* newest);  // false if nothing waits
  uint64_t returnable_bytes();
  uint64_t largest_free();
  uint64_t allocations() const;
  uint64_t frees() const;
  int64_t unpublished_live() const;

  void reset_after_fork();

  Shared* shared;
  MemorySource* source;
  Ledger* ledger;
  Garbage* garbage;  // nullptr: none is kept back
  uint32_t owner;    // what the chunks of this context say of themselves
  ChunkSupply supply;
  AnyStrategy strategy;
  Counter whole_live, whole_allocations, whole_frees;  // of chunks the program has as a whole

 private:
  void expect_background_work();
  bool anything_in_hand() const;
};

}  // namespace cistern::alloc
