// SPDX-License-Identifier: Apache-2.0
// The pool of one context: the way of every request, whatever strategy organises the free space.
//
//   allocate: clean memory at hand -> else ask what became clean -> else wait for what is waiting,
//             as long as a driver call takes -> else fresh memory -> else the steps of a shortage
//             (shortage.h)
//   free:     to the waiting queue of its pool. With too much waiting the free waits for the oldest
//             work (waiting_memory.h). Excess memory goes back to the driver in a free or after a
//             synchronisation (idle_work.h). An allocation releases memory only where that does not
//             wait, or in a shortage
//   submit:   before the program hands over more work, what was freed is marked: what is launched
//             later must not hold it back
//
// Below it are the memory of the context (context_memory.h), what waits in it (waiting_memory.h)
// and the work that no request needs at once (idle_work.h). Any thread may call anything, also
// while forget_all() ends a context; none may come after it. No lock is held while the source is
// called.
//
// The words, here and in the rooms below. Of memory: *live* is what the program holds; freed, it is
// *waiting* for earlier work, *parked* for a graph, *garbage* that a setting keeps back, or in
// *quarantine* because others know it; *clean* is a block that no earlier work can touch, *idle* a
// clean chunk. Of what is done with it:
//
//   obtain, release     a chunk from the source, and to it
//   take, put_back      from a pool's free memory, and to it
//   collect             chunks out of the pools, in a list, in order to release them
//   pick_up, put_down   what is in hand is in no place that others could look into
//   refresh             what became clean since can be taken from now on
//   flush               garbage begins to wait, as every freed block does
//   park, unpark        what a graph may use, until it is gone
//   sweep               once a tick: what is idle gets its age, what is too old goes
//   defer               the work of a free is done later
//   forget, forget_all  bookkeeping ends without a call to the source
//   give_back           a record of bookkeeping, to its arena
#pragma once

#include "allocator/context_memory.h"
#include "allocator/graph_arena/graph_runs.h"
#include "allocator/idle_work.h"
#include "allocator/waiting_memory.h"

namespace cistern::alloc {

enum class Freed : uint8_t {
  foreign,  // of no pool, for callers that look an address up: the driver's to answer
  done,
  invalid,  // ours, but not the start of something the program holds
};

class ContextPool {
 public:
  static constexpr int kShards = OnDemand::kShards;

  // `owner` is the number find() users get back through Chunk::at().
  // `sizes`: the strategy and its chunks.
  // `rules`: of groups, if there are to be any.
  void init(Shared* shared, MemorySource* source, const DeviceParts& device, uint32_t owner,
            const ChunkSizes& sizes, const GroupRules& rules = {});

  // Memory for `bytes` > 0; a result code of the source. `shard`: the caller's thread, as a number
  // below kShards, or below kMostThreads for thread_local.
  int allocate(uint64_t bytes, unsigned shard, uint64_t* address);

  // The same, beside what the caller got before where both are of one group (groups.h), if there
  // are groups here. Short of memory, and wherever a group cannot be, it is as allocate() says.
  int allocate_in_group(uint64_t bytes, unsigned shard, Groups::Caller caller, GraphRun graph,
                        uint64_t* address);
  bool groups() const { return memory_.groups.on(); }

  // The same, from the arena of the graph whose run it is, if there are arenas here
  // (graph_arena/graph_runs.h). Blocks that are known to outlive their graph, and requests that
  // are in none, are allocate()'s.
  int allocate_in_graph(uint64_t bytes, unsigned shard, GraphRun graph, uint64_t* address);
  bool arenas() const { return memory_.strategy.has_arenas(); }

  // The same at the place that the plan has for the request. False where it has none, or that is
  // not free: then another way serves it. To be asked first, where there is a plan, for each
  // request of the program. What was served otherwise without asking here is passed over.
  // `thread`: its number (ThreadNumbers); `phase`: as plan::Caller's.
  bool allocate_planned(uint64_t bytes, unsigned thread, uint32_t phase, uint64_t* address);
  void pass_over_planned(uint64_t bytes, unsigned thread, uint32_t phase);
  bool has_plan() const { return memory_.plan.on(); }
  // Each request that was served, while one looks for a plan to make.
  bool looks_for_plan() const { return memory_.plan.looks(); }
  void note_served(uint64_t bytes, const plan::Caller& caller, uint64_t address);

  // The same from clean memory that is at hand: kOutOfMemory where there is none. Neither waits nor
  // takes memory from the source.
  int allocate_clean(uint64_t bytes, unsigned shard, uint64_t* address);

  // `chunk` is what the index found for `address`. `code` is the source's result where the chunk
  // really went back, else kSuccess. `latest`: the ticket of a synchronisation that began after the
  // program had called, and covers all it did with the block.
  // `bytes`: what the program had asked for, where it is freed.
  Freed free(Chunk* chunk, uint64_t address, int* code, Ticket latest, uint64_t* bytes);
  Freed free(Chunk* chunk, uint64_t address, int* code, Ticket latest = Reclaim::kNow) {
    uint64_t bytes;
    return free(chunk, address, code, latest, &bytes);
  }

  // The same for a free in the order of a stream. A whole chunk that is not to be reused goes back
  // by the program's own call, `in_driver`.
  Freed free_ordered(Chunk* chunk, uint64_t address, int* code, const OrderedFree& in_driver,
                     uint64_t* bytes);

  // The driver's own answer, counted but never pooled (while a capture is in progress); only where
  // the driver has no memory left, and the request is `pooled`, what is clean here.
  int allocate_direct(uint64_t bytes, unsigned shard, bool pooled, uint64_t* address);

  // For a request that the settings keep out of the pools: a driver allocation of its own, never
  // reused. Short of memory what is kept here goes back for it; what cannot, free blocks between
  // live ones, serves it at last.
  int allocate_unpooled(uint64_t bytes, unsigned shard, uint64_t* address);
  // That last step alone, once everything else was tried.
  int allocate_at_last(uint64_t bytes, unsigned shard, uint64_t* address);

  // The block the program holds around `address`: start and the size it asked for.
  bool find(Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes);

  // Whether `address` is in a block the program holds: without a lock where chunks are whole.
  bool is_live(Chunk* chunk, uint64_t address);

  // The block at `address` became known outside the process: a whole one goes back to the driver
  // when it is freed; what is freed in a slab, or such a block in a larger chunk, is reused no
  // more, and the slab or chunk goes back with its last block. False when the program holds nothing
  // there.
  bool mark_exported(Chunk* chunk, uint64_t address);

  // What was freed after it became known outside goes back, as far as it is units.
  void release_known() {
    if (Expandable* units = memory_.strategy.units()) units->release_known_units();
  }

  // Another process got the whole block in this chunk (ToldSizes).
  void note_size_told(const Chunk* chunk) { memory_.shared->told_sizes.note(chunk->requested()); }

  // The program is about to wait for the context.
  void before_synchronise() { waiting_.before_synchronise(); }

  // The program waited for everything given to the context before this ticket was closed.
  void synchronised(Ticket ticket) { memory_.flush_synchronised(ticket); }

  // Releases what exceeds the idle budget; for a moment at which the driver will not wait.
  void release_excess() { idle_work_.after_synchronise(); }

  // What the program's calls do for idle memory, should it make none for a long time. For a thread
  // of ours. True if there will be more to do.
  bool work_in_background() {
    if (const plan::OwnPlans* made = memory_.plan.think()) {
      memory_.source->plan_made(plan::bytes_of(made->plans()), made->requests());
    }
    return idle_work_.in_background();
  }

  // visit(address, bytes), which may call the source: what has units behind it, for a change of who
  // may use them. What comes later is the source's to know.
  template <typename Visitor>
  void for_each_mapped(Visitor visit) {
    if (Expandable* units = memory_.strategy.units()) units->for_each_mapped(visit);
  }

  // visit(units, count, offset), as Expandable::visit_units_of(); false also where the block lies
  // in no units.
  template <typename Visitor>
  bool visit_units_of(const Chunk* chunk, uint64_t address, Visitor visit) {
    Expandable* units = memory_.strategy.units();
    return units != nullptr && chunk->is() == Role::range &&
           units->visit_units_of(chunk, address, visit);
  }

  // For a shortage: releases what the program does not hold, as far as that waits for no later work
  // and the rest is done within `patience_ns`; false if that was nothing.
  bool release_returnable(uint64_t patience_ns) { return memory_.release_returnable(patience_ns); }

  // What no earlier work can touch goes to the source, without a wait; false: nothing went.
  bool release_clean() {
    waiting_.ask();
    return memory_.source->pays_what_it_owes(/*waits=*/false) &&
           memory_.release_clean(ContextMemory::Units::go, ChunkSupply::Order::waits_not);
  }

  // Everything that was freed goes to the source, which waits for earlier work as its own free
  // does.
  bool release_freed() { return memory_.release_all_freed(); }
  uint64_t waiting_bytes() const { return memory_.waiting_bytes(); }

  // The program is about to hand work to the device, for any context (`at_once`: work that may wait
  // for the host): what was freed is marked, if that is due. True if something stays unmarked.
  bool before_submission(bool at_once) { return waiting_.before_submission(at_once); }

  // The context is gone and its memory with it: forgets everything without a call to the source.
  void forget_all();

  Usage usage() const { return memory_.usage(); }
  // Of what the program does not hold, the part that it could have: back in the driver's hands, or
  // here, where a chunk strategy cuts any size from it. Not while the context may end.
  uint64_t returnable_bytes() { return memory_.returnable_bytes(); }
  uint64_t largest_free() { return memory_.largest_free(); }
  uint64_t allocations() const { return memory_.allocations(); }
  uint64_t frees() const { return memory_.frees(); }
  // Bytes of small blocks that the Ledger does not know yet (it may also know too many).
  int64_t unpublished_live() const { return memory_.unpublished_live(); }
  void reset_after_fork() { memory_.reset_after_fork(); }

 private:
  template <typename Miss>
  int serve(Request& request, uint64_t* address, Miss miss);
  template <typename Miss>
  int allocate_filled(Request& request, uint64_t* address, Miss miss);
  [[gnu::noinline]] int miss(Request& request);
  bool take_first_member(Request& request, Groups::Caller caller);
  template <typename Pools>
  bool take_first_member(Pools& pools, Request& request, Groups::Caller caller);
  int hand_out_direct(const Request& request, uint64_t* address);
  bool filled_ahead(uint64_t address);

  uint64_t free_cut(Role role, Chunk* chunk, uint64_t address, Ticket latest, uint64_t* waiting);
  Freed free_by(const OrderedFree* ordered, Chunk* chunk, uint64_t address, int* code,
                Ticket latest, uint64_t* bytes);
  uint64_t free_whole(Chunk* chunk, uint64_t address, int* code, Ticket latest,
                      const OrderedFree* ordered);
  [[gnu::noinline]] void do_extra_work(uint64_t freed);
  [[gnu::noinline]] bool find_planned(uint64_t bytes, unsigned thread, uint32_t phase,
                                      uint64_t* address);
  bool take_planned(uint64_t bytes, plan::PlanPlace place, uint64_t* address);
  [[gnu::noinline]] bool take_planned_late(uint64_t bytes, uint64_t offset, uint64_t plan_bytes,
                                           bool first, uint64_t* address);
  bool wait_for_place(uint64_t bytes, plan::PlanPlace place, uint64_t* address);
  bool obtain_planned_chunk(plan::PlanPlace place);

  ContextMemory memory_;
  WaitingMemory waiting_;
  IdleWork idle_work_;
};

}  // namespace cistern::alloc
