// SPDX-License-Identifier: Apache-2.0
// The memory of a plan, or of those of several threads: one chunk, as large as they take, in which
// the requests of a period lie where the plan puts them (plan/replay.h). It stands before whatever
// strategy serves the rest. A place is handed out only while all of its memory is clean, so a plan
// that is wrong costs memory and never puts a block on another one.
//
// The plan comes from a file, or is made here while the program runs (plan/auto_plan.h): what it
// allocates and frees is observed until a plan is followed, and again once it was not followed to
// its end for long.
//
// The chunk is taken when the first request of a period has a place in it. It goes back to the
// driver once it is idle and the plan is left for good, where what is idle for long goes back, and
// in a shortage. Any thread; no lock is held while the chunk layer is called. think() is called by
// one thread at a time.
#pragma once

#include "allocator/chunk_pools/chunk_pools.h"
#include "allocator/plan/auto_plan.h"
#include "allocator/plan/replay.h"
#include "allocator/shared.h"

namespace cistern::alloc {

class PlanArena {
 public:
  void init(Shared* shared, ChunkSupply* supply, const DeviceParts& device, uint32_t owner,
            const ChunkSizes& sizes);
  bool on() const { return on_; }

  // Whether the request has a place in the plan, and where: Replay::next(). To be asked once for
  // each request of the program, in the order of each thread.
  [[gnu::always_inline]] bool is_next(uint64_t bytes, unsigned thread, uint32_t phase,
                                      plan::PlanPlace* place, bool* placed) {
    return replay_.is_next(bytes, thread, phase, place, placed);
  }
  bool find(uint64_t bytes, unsigned thread, uint32_t phase, plan::PlanPlace* place) {
    return replay_.find(bytes, thread, phase, place);
  }
  // It is served elsewhere.
  void pass_over(uint64_t bytes, unsigned thread, uint32_t phase) {
    plan::PlanPlace place;
    replay_.next(bytes, thread, phase, &place);
  }

  // Whether there is a chunk for it. It is asked for once in a period, and ever more seldom while
  // the driver refuses it: after 1, 2, 4 ... periods, but no later than in the first that begins a
  // second after the refusal. At once where less is live than at the last refusal, or where idle
  // memory could not go to the driver then for work in flight, and now can. The plan of a run has
  // one period: any request asks, the first two at once.
  bool has_chunk_for(plan::PlanPlace place) const { return pool_for(place) != nullptr; }
  bool may_obtain(plan::PlanPlace place, MemorySource* source);
  // A small one takes a driver page, as ChunkSizes::chunk_for() says.
  bool obtain(plan::PlanPlace place) {
    return pools_.add_chunk(place.plan_bytes < kDriverSharesBelow ? kDriverPage : place.plan_bytes);
  }
  // Whether it was refused before: then a request waits for work in flight.
  bool waits_for_work() const { return refusals_.load(std::memory_order_relaxed) >= kPatience; }
  // `owed`: work in flight held back idle memory.
  void note_obtained(bool obtained, bool owed);

  // Serves it there. False where that memory is not free, or there is no chunk for the plan.
  bool take(uint64_t bytes, plan::PlanPlace place, uint64_t* address) {
    BlockPool* pool = pool_for(place);
    if (pool == nullptr) return false;
    *address = pools_.take_at(*pool, place.offset, bytes);
    if (*address == 0) return false;
    ledger_->plan_served.add();
    return true;
  }
  void note_occupied() { ledger_->plan_occupied.add(); }

  // For a plan that is made here: whether it is looked at what is served, or is to be from now on.
  bool looks() const { return plans_ && (observes() || replay_.seldom_followed()); }
  // What was served, and freed. True: think() has something to do.
  bool note_served(uint64_t bytes, const plan::Caller& caller, uint64_t address);
  void note_freed(uint64_t address) {
    if (observes()) observer_.freed(address);
  }
  bool observes() const { return observes_.load(std::memory_order_relaxed); }
  // Makes a plan, if the program repeats itself by now; nullptr: it did not.
  const plan::OwnPlans* think();

  // An idle chunk that nothing is planned for any more, or of a plan before.
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

  // Takes out what is idle, for the driver; ChunkPools puts down all of a list.
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
  // Of a chunk for it; nullptr: there is none.
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
  unsigned next_;          // of them
  uint64_t align_;
  ChunkPools pools_;
  Ledger* ledger_;
  bool on_, plans_;
  Mutex mutex_;  // while it begins, or ends, to observe
  std::atomic<bool> observes_;
  std::atomic<unsigned> refusals_, periods_to_wait_;
  std::atomic<bool> owed_;              // at the last refusal
  std::atomic<uint64_t> refused_live_;  // bytes of the program then
  std::atomic<uint64_t> refused_at_ns_;
};

}  // namespace cistern::alloc
