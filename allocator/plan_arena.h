// SPDX-License-Identifier: Apache-2.0
// The memory of a plan, or of the plans of several threads: one chunk, as large as they need
// together. Each request of a period lies where the plan puts it (plan/replay.h). The strategy
// serves all other requests. A place is handed out only while all of its memory is clean, so a plan
// that is wrong costs memory and never puts a block on another one.
//
// The plan comes from a file, or is made here while the program runs (plan/period.h). For that,
// allocations and frees are observed until a plan is followed. They are observed again once no
// period was followed to its end for long.
//
// The chunk is taken at the first request of a period that has a place in it. The idle chunk goes
// back to the driver once the plan is left for good, if it was idle for long and a setting returns
// such memory, and in a shortage. Any thread; no lock is held while the chunk layer is called.
// think() is called by one thread at a time.
#pragma once

#include "allocator/any_strategy.h"
#include "allocator/chunk_pools/chunk_pools.h"
#include "allocator/plan/period.h"
#include "allocator/plan/replay.h"

namespace cistern::alloc {

class PlanArena {
 public:
  void init(Shared* shared, ChunkSupply* supply, const DeviceParts& device, uint32_t owner,
            const ChunkSizes& sizes);
  bool on() const { return on_; }

  // Replay::is_next() and find(): whether the request has a place in the plan, and where. Ask once
  // for each request of the program, in each thread's order.
  [[gnu::always_inline]] bool is_next(uint64_t bytes, unsigned thread, uint32_t phase,
                                      plan::PlanPlace* place, bool* placed) {
    return replay_.is_next(bytes, thread, phase, place, placed);
  }
  bool find(uint64_t bytes, unsigned thread, uint32_t phase, plan::PlanPlace* place) {
    return replay_.find(bytes, thread, phase, place);
  }
  // The request is served elsewhere: only moves the plan on by it.
  void pass_over(uint64_t bytes, unsigned thread, uint32_t phase) {
    plan::PlanPlace place;
    replay_.next(bytes, thread, phase, &place);
  }

  // has_chunk_for(): whether the plan's chunk is there. may_obtain(): whether to ask the driver for
  // it now. Each period asks once. While the driver refuses, the arena asks ever more seldom: after
  // 1, 2, 4 ... periods, but again in the first period that begins a second after the refusal. It
  // asks at once if less is live than at the last refusal. It also asks at once if work in flight
  // kept idle memory from the driver then, and no longer does. The plan of a whole run has only one
  // period: any request may ask, the first two at once.
  bool has_chunk_for(plan::PlanPlace place) const { return pool_for(place) != nullptr; }
  bool may_obtain(plan::PlanPlace place, MemorySource* source);
  // Obtains the chunk. A small plan takes a whole driver page (ChunkSizes::chunk_for()).
  bool obtain(plan::PlanPlace place) { return pools_.add_chunk(chunk_bytes(place)); }
  static uint64_t chunk_bytes(plan::PlanPlace place) {
    return place.plan_bytes < kDriverSharesBelow ? kDriverPage : place.plan_bytes;
  }
  // Whether the chunk was refused before. If so, the next attempt waits for work in flight.
  bool waits_for_work() const { return refusals_.load(std::memory_order_relaxed) >= kPatience; }
  // The result of an attempt. `owed`: work in flight kept idle memory from the driver.
  void note_obtained(bool obtained, bool owed);

  // Serves the request at its place. False if that memory is not free, or if the plan has no chunk.
  bool take(uint64_t bytes, plan::PlanPlace place, uint64_t* address) {
    BlockPool* pool = pool_for(place);
    if (pool == nullptr) return false;
    *address = pools_.take_at(*pool, place.offset, bytes);
    if (*address == 0) return false;
    ledger_->plan_served.add();
    return true;
  }
  void note_occupied() { ledger_->plan_occupied.add(); }

  // For plans that are made here: whether requests are observed, or should be from now on.
  bool looks() const { return plans_ && (observes() || replay_.seldom_followed()); }
  // A request was served; a block was freed. note_served() is true if think() has something to do.
  bool note_served(uint64_t bytes, const plan::Caller& caller, uint64_t address);
  void note_freed(uint64_t address) {
    if (observes()) observer_.freed(address);
  }
  bool observes() const { return observes_.load(std::memory_order_relaxed); }
  // Makes a plan if the program repeats itself by now; nullptr if it made none.
  const plan::OwnPlans* think();

  // Whether there is an idle chunk of a plan that is left for good, or of an earlier plan.
  bool over_budget() const {
    BlockPool* pool = pools_.pool_at(0);
    return pool != nullptr && (replay_.left_for_good() || pool->chunks() > 1) &&
           pool->any_idle_chunk();
  }
  void collect_excess(ChunkList* out) {
    if (!over_budget()) return;
    replay_.left_for_good() ? pools_.collect_one_idle(0, out)
                            : pools_.collect_idle_before_newest(out);
  }

  // Take idle chunks out of the pools, for the driver. A list of their own, because ChunkPools puts
  // down every chunk in the list that it gets.
  void collect_clean(ChunkList* out) {
    ChunkList here;
    pools_.collect_clean(&here);
    move(&here, out);
  }
  void collect_all(ChunkList* out) {
    ChunkList here;
    pools_.collect_all(&here);
    move(&here, out);
  }

  // The context is gone.
  void end();

  ChunkPools& pools() { return pools_; }
  const ChunkPools& pools() const { return pools_; }

  void reset_after_fork() {
    replay_.reset_after_fork();
    observer_.reset_after_fork();
    mutex_.reset();
    pools_.reset_after_fork();
  }

 private:
  // The pool if its newest chunk is large enough for the plan, otherwise nullptr.
  BlockPool* pool_for(plan::PlanPlace place) const {
    BlockPool* pool = pools_.pool_at(0);
    return pool != nullptr && pool->newest_chunk_bytes() >= place.plan_bytes ? pool : nullptr;
  }
  static void move(ChunkList* from, ChunkList* to) {
    while (Chunk* chunk = from->pop()) to->push(chunk);
  }
  void observe_again();
  void stop_observing();
  void ask_again();

  static constexpr unsigned kPatience = 1;  // refusals

  plan::Replay replay_;
  plan::Observer observer_;
  plan::OwnPlans own_[2];  // the one that is followed, and the next
  unsigned next_;          // index in own_ of the next plan
  uint64_t align_;
  ChunkPools pools_;
  Ledger* ledger_;
  bool on_, plans_;
  Mutex mutex_;  // held to begin or end observing
  std::atomic<bool> observes_;
  std::atomic<unsigned> refusals_, periods_to_wait_;
  std::atomic<bool> owed_;              // note_obtained()'s, at the last refusal
  std::atomic<uint64_t> refused_live_;  // live bytes at the last refusal
  std::atomic<uint64_t> refused_at_ns_;
};

}  // namespace cistern::alloc
