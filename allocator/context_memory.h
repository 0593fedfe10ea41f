// SPDX-License-Identifier: Apache-2.0
// All the memory of one context: its chunk layer (chunk_supply.h) and its strategy (any_strategy.h)
// and the arena of a plan (plan_arena.h), with the operations over all of them: the way of a
// request into each, the ways back to the source, and sums. ContextPool owns it and chooses the
// way. IdleWork and Shortage use it too.
//
// Any thread may call anything. No lock is held while the source is called.
#pragma once

#include "allocator/any_strategy.h"
#include "allocator/chunk/chunk_supply.h"
#include "allocator/chunk_pools/groups.h"
#include "allocator/plan_arena.h"

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
            uint32_t number, const ChunkSizes& sizes, const GroupRules& rules);

  // Serve a request: from a fresh chunk, or with a driver allocation of its own; from any free
  // block, wherever it is. The codes are the source's.
  int take_fresh(Request& request);
  bool take_from_anywhere(Request& request, Step* step);

  // A request was served with a chunk of its own.
  void count_whole(uint64_t bytes);

  // What became clean since is idle from now on, merged with its neighbours; with `spare_too` no
  // empty slab stays one. Where fills are gathered nothing is clean before it is filled.
  void refresh(bool spare_too);

  // To the source, from little to all; false: nothing went. Excess: what is idle beyond the
  // strategy's budget; in a free, where others tend it (`tended`), only what cannot wait for them.
  // Before `coming` bytes are obtained, and in the background, nothing is waited for. Clean:
  // everything that no earlier work can touch. Returnable: whatever the program does not hold and
  // can go without a wait for work handed over later: what is clean by then, and where the source
  // cannot take that alone, all of it once no work goes on. That is waited for, no longer than
  // `patience_ns`.
  void release_excess();
  void release_excess_in_free(bool tended);
  void release_excess_before(uint64_t coming);
  void release_excess_in_background();
  // Whether there is excess, or may be without another free.
  bool over_floor() const {
    return plan.over_budget() || strategy.visit([](const auto& s) { return s.over_floor(); });
  }
  // `units`: whether clean ones go, too (allocator/expandable).
  enum class Units : uint8_t { go, stay };
  bool release_clean(Units units = Units::go, ChunkSupply::Order order = ChunkSupply::Order::waits);
  bool release_returnable(uint64_t patience_ns, Units units = Units::go);
  // What is freed, whether clean or not: the source waits for earlier work.
  bool release_all_freed(Units units = Units::go);
  // Clean chunks that nobody needs: to the source, unless it would wait; then they are idle again.
  bool release_idle(ChunkList* chunks);

  // Whether everything handed to the context so far was done, within `patience_ns`. Unknown where
  // its work cannot be marked: then only the source's own free can wait for it.
  enum class Work : uint8_t { done, goes_on, unknown };
  Work await_work(uint64_t patience_ns);

  // How long to wait for work where `wanted_ns` would be right, and that such a wait was in vain.
  // To be asked before the mark that is waited for is made.
  uint64_t patience(uint64_t wanted_ns);
  void note_stuck(uint64_t waited_ns);

  // Memory is short: what is parked waits from now on, as every freed block does. With the driver
  // alone the program would have had it back at its free.
  void unpark_everything();

  // Garbage, if this context may have any, begins to wait as every freed block does.
  void flush_garbage();                    // of the whole device: memory is short
  void flush_synchronised(Ticket ticket);  // of this context: it was waited for

  // The context is gone: forgets everything without a call to the source. Threads that have taken
  // something out are waited for.
  void forget_all();

  // Sums over the chunk layer and the strategy's pools.
  Usage usage() const;
  uint64_t waiting_bytes() const;
  uint64_t queued_bytes() const;  // all that ever waited
  // The tickets of the oldest and the newest free that waits; false if none does. The newest alone
  // needs no lock.
  bool waiting_range(Ticket* oldest, Ticket* newest);
  bool newest_waiting(Ticket* newest) const;
  // What release_returnable() could give now, or requests be served from.
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
  uint32_t party;    // in reclamation
  ChunkSupply supply;
  AnyStrategy strategy;
  PlanArena plan;
  Groups groups;

  // The pools of blocks, of the strategy and of the plan.
  template <typename Visitor>
  void for_each_pool(Visitor visit) {
    strategy.for_each_pool(visit);
    plan.pools().for_each_pool(visit);
  }
  template <typename Visitor>
  void for_each_pool(Visitor visit) const {
    strategy.for_each_pool(visit);
    plan.pools().for_each_pool(visit);
  }

  // Chunks of both that are idle, and the chunk layer's (ChunkPools::see_idle(), collect_aged()).
  // Of no more than `most` bytes.
  IdleChunks see_idle(Tick now);
  void collect_aged(Tick now, uint32_t least, uint64_t most, ChunkList* out);

 private:
  void expect_background_work();
  bool release_units(Units units);
  bool settle();
  uint64_t returnable_bytes(bool idle);  // whether no work goes on
  void await_work_before_frees(uint64_t patience_ns);
  void note_time();
  bool over_budget(uint64_t coming = 0) const;
  template <typename Release>
  void release_excess_by(uint64_t coming, Release release);
  void release_what_is_over(bool may_wait);
  void release_refused();
  bool held_up_by_questions(uint64_t coming) const;
  void release_unowed(uint64_t coming);
  void release_proven(uint64_t coming);

  std::atomic<bool> releasing_;  // a thread releases what is beyond the budget
  // Of the thread that releases: the last look at what is idle, the last one that is proven, and
  // what has to be clean until the last one is.
  static constexpr Ticket kNoProof = ~Ticket{0};
  Tick looks_, proven_;
  Ticket proof_;
  std::atomic<Ticket> stuck_at_;  // what was clean when work was waited for in vain
  Counter waited_in_vain_ns_;
  std::atomic<uint64_t> counted_until_ns_;  // several threads may wait in vain at once
  bool anything_in_hand() const;
};

}  // namespace cistern::alloc
