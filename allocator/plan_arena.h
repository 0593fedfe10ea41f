// SPDX-License-Identifier: Apache-2.0
// The memory of a plan: one chunk, as large as the plan takes, in which the requests of a period
// lie where the plan puts them (plan/replay.h). It stands before whatever strategy serves the rest.
// A place is handed out only while all of its memory is clean, so a plan that is wrong costs memory
// and never puts a block on another one.
//
// The chunk is taken when the first request has a place in it. It goes back to the driver once it
// is idle and the plan is not followed, and in a shortage. Any thread; no lock is held while the
// chunk layer is called.
#pragma once

#include "allocator/chunk_pools/chunk_pools.h"
#include "allocator/plan/replay.h"
#include "allocator/shared.h"

namespace cistern::alloc {

class PlanArena {
 public:
  // nullptr: there is no plan.
  void init(const plan::Plan* plan, Shared* shared, ChunkSupply* supply, const DeviceParts& device,
            uint32_t owner) {
    replay_.follow(plan, device.ledger);
    ledger_ = device.ledger;
    if (plan != nullptr) ledger_->plan_bytes.set(plan->head().bytes);
    DeviceParts here = device;
    here.reuse = ReuseRule::about;  // what a place is free for is the plan's to say
    pools_.init(shared, &shared->blocks, supply, here, owner,
                {StrategyKind::naive_best_fit, 0, 0, kBlockGranule, false, false}, Role::planned);
  }
  bool on() const { return replay_.plan() != nullptr; }

  // Whether the request has a place in the plan, and where. To be asked once for each request of
  // the program, in their order.
  bool place(uint64_t bytes, uint64_t* offset) { return replay_.next(bytes, offset); }

  // Serves it from there. False where that memory is not free, or there is no chunk to be had.
  bool take(Request& request, uint64_t offset) {
    const bool taken = pools_.take_at(request, offset, chunk_bytes());
    (taken ? ledger_->plan_served : ledger_->plan_occupied).add();
    return taken;
  }
  uint64_t chunk_bytes() const { return replay_.plan()->head().bytes; }
  bool has_chunk() const {
    const BlockPool* pool = pools_.pool_at(0);
    return pool != nullptr && !pool->no_chunk_yet();
  }

  // An idle chunk that nothing is planned for any more.
  bool over_budget() const {
    const BlockPool* pool = pools_.pool_at(0);
    return pool != nullptr && pool->idle_chunk_bytes() != 0 && replay_.left();
  }
  void collect_excess(ChunkList* out) {
    if (over_budget()) pools_.collect_one_idle(0, out);
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
  void end() { replay_.follow(nullptr, ledger_); }

  ChunkPools& pools() { return pools_; }
  const ChunkPools& pools() const { return pools_; }

  void reset_after_fork() {
    replay_.reset_after_fork();
    pools_.reset_after_fork();
  }

 private:
  static void move(ChunkList* from, ChunkList* to) {
    while (Chunk* chunk = from->pop()) to->push(chunk);
  }

  plan::Replay replay_;
  ChunkPools pools_;
  Ledger* ledger_;
};

}  // namespace cistern::alloc
