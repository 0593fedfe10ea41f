// SPDX-License-Identifier: Apache-2.0
// All the memory of one context: its chunk layer (chunk_supply.h), its strategy (any_strategy.h)
// and the arena of its plan (plan_arena.h). It has the operations that concern all three: serving a
// request, releasing memory to the source, and sums. ContextPool owns it; WaitingMemory, IdleWork
// and Shortage use it too.
//
// Any thread may call anything. No lock is held while the source is called.
#pragma once

#include "allocator/any_strategy.h"
#include "allocator/chunk/chunk_supply.h"
#include "allocator/chunk_pools/groups.h"
#include "allocator/plan_arena.h"

namespace cistern::alloc {

// Bytes by state. The parts may be read at slightly different moments.
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

  // Two ways to serve a request. take_fresh(): from a new chunk, or with a driver allocation of its
  // own if the request is not pooled; returns a code of the source. take_from_anywhere(): from any
  // free block in any pool; false if there is none.
  int take_fresh(Request& request);
  bool take_from_anywhere(Request& request, Step* step);

  // A request was served with a whole chunk: counts it as live.
  void count_whole(uint64_t bytes);

  // Makes memory that has become clean available: merges blocks, and makes empty slabs idle chunks.
  // With `spare_too` the pools keep no empty slab. With gathered fills, memory is filled first.
  void refresh(bool spare_too);

  // The functions below release memory to the source, from little to all. Those with a result
  // return false if nothing went.
  // release_excess(): idle memory beyond the strategy's budget. In a free: if the background thread
  // tends it (`tended`), only once the idle memory is far over the budget. Before `coming` bytes
  // are obtained, and in the background: without a wait.
  // release_clean(): everything that no earlier work can touch.
  // release_returnable(): everything that the program does not hold and that can go without a wait
  // for work handed over later. That is the clean memory. If the source cannot take clean memory by
  // itself, it is all freed memory, once the context has no unfinished work; the call waits for
  // that no longer than `patience_ns`. For the work before the newest free it waits no longer than
  // `freed_ns`. With 0 for both it asks once whether the work is done and waits for none, as in a
  // free: the driver's does not wait for what other threads launch meanwhile.
  void release_excess();
  void release_excess_in_free(bool tended);
  void release_excess_before(uint64_t coming);
  void release_excess_in_background();
  // Whether there is excess, or may be soon even without another free.
  bool over_floor() const {
    return plan.over_budget() || strategy.visit([](const auto& s) { return s.over_floor(); });
  }
  // Whether clean units go to the source too (allocator/expandable).
  enum class Units : uint8_t { go, stay };
  bool release_clean(Units units = Units::go, ChunkSupply::Order order = ChunkSupply::Order::waits);
  bool release_returnable(uint64_t patience_ns, Units units = Units::go,
                          uint64_t freed_ns = Deadlines::kRelease);
  // Releases all freed memory, whether clean or not. The source's free waits for earlier work.
  bool release_all_freed(Units units = Units::go);
  // Releases these clean chunks. If the source would have to wait, they become idle again; then
  // false.
  bool release_idle(ChunkList* chunks);

  // Waits up to `patience_ns` until all work handed to the context so far is done. unknown: the
  // work cannot be marked, so only the source's own free can wait for it.
  enum class Work : uint8_t { done, goes_on, unknown };
  Work await_work(uint64_t patience_ns);

  // How long to wait for work if `wanted_ns` would be right: less if earlier waits were in vain and
  // nothing has ended since. Call it before making the mark to wait for. After a wait in vain, call
  // note_stuck().
  uint64_t patience(uint64_t wanted_ns);
  void note_stuck(uint64_t waited_ns);

  // Memory is short: parked blocks wait from now on, as every freed block does. With the driver
  // alone the program would have had this memory back at its free.
  void unpark_everything();

  // If a setting keeps garbage: it begins to wait, as every freed block does.
  void flush_garbage();                    // of the whole device, because memory is short
  void flush_synchronised(Ticket ticket);  // of this context, because the program waited for it

  // The context is gone. Waits for threads that have memory in hand, then forgets everything
  // without a call to the source.
  void forget_all();

  // Sums over the chunk layer and the strategy's pools.
  Usage usage() const;
  uint64_t waiting_bytes() const;
  uint64_t queued_bytes() const;  // of all frees that ever waited for work
  // The tickets of the oldest and the newest waiting free; false if none waits. newest_waiting()
  // takes no lock.
  bool waiting_range(Ticket* oldest, Ticket* newest);
  bool newest_waiting(Ticket* newest) const;
  // Bytes that release_returnable() could release now, or that could serve requests of any size.
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
  uint32_t owner;    // the context's number, in Place::owner() of its chunks
  uint32_t party;    // the context's number in Reclaim; several pools may share one
  ChunkSupply supply;
  AnyStrategy strategy;
  PlanArena plan;
  Groups groups;

  // Visits the strategy's pools of blocks and the plan's.
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

  // ChunkPools::see_idle() and collect_aged() for the strategy, the plan and the chunk layer
  // together. collect_aged() takes a chunk of at most `most` bytes.
  IdleChunks see_idle(Tick now);
  void collect_aged(Tick now, uint32_t least, uint64_t most, ChunkList* out);

 private:
  void expect_background_work();
  bool release_units(Units units);
  bool settle();
  uint64_t returnable_bytes(bool idle);                // idle: the context has no unfinished work
  bool await_work_before_frees(uint64_t patience_ns);  // false: it did not wait
  void note_time();
  bool over_budget(uint64_t coming = 0) const;
  template <typename Release>
  void release_excess_by(uint64_t coming, Release release);
  void release_what_is_over(bool may_wait);
  void release_refused();
  bool held_up_by_questions(uint64_t coming) const;
  void release_unowed(uint64_t coming);
  void release_proven(uint64_t coming);

  std::atomic<bool> releasing_;  // a thread releases excess
  // For the thread that releases (release_proven()): the number of the last look at idle memory,
  // that of the last proven look, and the ticket that must be clean to prove the last look.
  static constexpr Ticket kNoProof = ~Ticket{0};
  Tick looks_, proven_;
  Ticket proof_;
  std::atomic<Ticket> stuck_at_;  // Reclaim::clean() after the last wait in vain
  Counter waited_in_vain_ns_;
  std::atomic<uint64_t> counted_until_ns_;  // several threads may wait in vain at once
  bool anything_in_hand() const;
};

}  // namespace cistern::alloc
