// SPDX-License-Identifier: Apache-2.0
// The pool of one context. Every request and every free of the context passes through it, whichever
// strategy organises the free space.
//
//   allocate: clean memory at hand -> else ask what became clean -> else wait for waiting memory,
//             for no longer than a driver call takes -> else fresh memory -> else the steps of a
//             shortage (shortage.h)
//   free:     to the waiting queue of its pool. With too much waiting the free waits for the oldest
//             work (waiting_memory.h). Excess memory goes back to the driver in a free or after a
//             synchronisation (idle_work.h). An allocation releases memory only if that needs
//             no wait, or in a shortage
//   submit:   before the program hands over more work, the frees so far are marked, so that later
//             work does not hold their memory back
//
// Below it are the memory of the context (context_memory.h), its waiting memory (waiting_memory.h)
// and the work that can wait (idle_work.h). Any thread may call any function, even while
// forget_all() runs. After it, only sums may be read until the next init(). No lock is held while
// the source is called.
//
// The words used here and in the rooms below. Memory is *live* while the program holds it. A freed
// block is *waiting* for earlier work, *parked* because a graph may use it, *garbage* that a
// setting keeps back, or in *quarantine* because it is known outside the process. A block is
// *clean* once no earlier work can touch it. A chunk is *idle* if all of it is clean. The actions:
//
//   obtain, release     get a chunk from the source; return it to the source
//   take, put_back      take memory from a pool's free memory; put it back
//   collect             move chunks out of the pools into a list, to release them
//   pick_up, put_down   begin and end to hold a chunk in hand, where no other thread finds it
//   refresh             make memory that has become clean available to requests
//   flush               let garbage wait like every freed block
//   park, unpark        keep a freed block back while a graph may use it; stop keeping it back
//   sweep               once a tick: give idle chunks an age, release those that are too old
//   defer               do the work of a free later
//   forget, forget_all  end the bookkeeping without a call to the source
//   give_back           return a record of bookkeeping to its arena
#pragma once

#include "allocator/context_memory.h"
#include "allocator/graph_arena/graph_runs.h"
#include "allocator/idle_work.h"
#include "allocator/waiting_memory.h"

namespace cistern::alloc {

enum class Freed : uint8_t {
  foreign,  // in no pool, so the driver answers. Only callers that look an address up say so
  done,
  invalid,  // in a chunk of ours, but not the start of a live block
};

class ContextPool {
 public:
  static constexpr int kShards = OnDemand::kShards;

  // `owner`: the number of the context, which Chunk::at().owner() returns for its chunks.
  // `sizes`: the strategy and its chunks.
  // `rules`: those of groups. By default there are no groups.
  void init(Shared* shared, MemorySource* source, const DeviceParts& device, uint32_t owner,
            const ChunkSizes& sizes, const GroupRules& rules = {});

  // Allocates `bytes` > 0. Returns a result code of the source. `shard`: a number for the calling
  // thread, below kShards, or below kMostThreads for thread_local.
  int allocate(uint64_t bytes, unsigned shard, uint64_t* address);

  // Only if groups() holds. If the caller has an open group (groups.h), the block lies behind the
  // group's last member. If the request can neither join nor begin a group, allocate_in_graph()
  // serves it.
  int allocate_in_group(uint64_t bytes, unsigned shard, Groups::Caller caller, GraphRun graph,
                        uint64_t* address);
  bool groups() const { return memory_.groups.on(); }

  // As allocate(), but from the arena of the graph that runs (graph_arena/graph_runs.h). Without
  // arenas, or if `graph` names no run, it is allocate(). A block that is known to outlive its
  // graph does not come from the arena.
  int allocate_in_graph(uint64_t bytes, unsigned shard, GraphRun graph, uint64_t* address);
  bool arenas() const { return memory_.strategy.has_arenas(); }

  // Allocates at the place that the plan has for the request. False if the plan has no place for
  // it, or if the place is not free; the caller then allocates in another way. With a plan, call it
  // first for each request of the program. For a request that was served without it, call
  // pass_over_planned(), so that the plan stays in step. `thread`: the thread's number
  // (ThreadNumbers); `phase`: as in plan::Caller.
  bool allocate_planned(uint64_t bytes, unsigned thread, uint32_t phase, uint64_t* address);
  void pass_over_planned(uint64_t bytes, unsigned thread, uint32_t phase);
  bool has_plan() const { return memory_.plan.on(); }
  // While looks_for_plan() holds, tell note_served() of each request that was served: a plan may be
  // made of them.
  bool looks_for_plan() const { return memory_.plan.looks(); }
  void note_served(uint64_t bytes, const plan::Caller& caller, uint64_t address);

  // As allocate(), but only from clean memory at hand; kOutOfMemory if there is none. Neither waits
  // nor takes memory from the source.
  int allocate_clean(uint64_t bytes, unsigned shard, uint64_t* address);

  // `chunk` is what the index found for `address`. `code`: the source's result if the chunk went
  // back to it, otherwise kSuccess. `latest`: the ticket of a synchronisation that began after the
  // program's call, so it covers all work on the block. `bytes`: the requested size of the block; 0
  // if the result is `invalid`.
  Freed free(Chunk* chunk, uint64_t address, int* code, Ticket latest, uint64_t* bytes);
  Freed free(Chunk* chunk, uint64_t address, int* code, Ticket latest = Reclaim::kNow) {
    uint64_t bytes;
    return free(chunk, address, code, latest, &bytes);
  }

  // As free(), for a free in stream order. If the block is a whole chunk that must not be reused,
  // the program's own call, `in_driver`, frees it.
  Freed free_ordered(Chunk* chunk, uint64_t address, int* code, const OrderedFree& in_driver,
                     uint64_t* bytes);

  // Asks the driver for an allocation that is counted but never pooled, for example while a capture
  // is in progress. If the driver is out of memory and the request is `pooled`, clean memory of the
  // pools serves it.
  int allocate_direct(uint64_t bytes, unsigned shard, bool pooled, uint64_t* address);

  // For a request that the settings keep out of the pools: a driver allocation of its own, never
  // reused. If the driver is out of memory, cached chunks are returned to it first. As a last
  // resort, free gaps between live blocks serve the request.
  int allocate_unpooled(uint64_t bytes, unsigned shard, uint64_t* address);
  // Only that last resort, once everything else was tried.
  int allocate_at_last(uint64_t bytes, unsigned shard, uint64_t* address);

  // Start and requested size of the live block around `address`; false if there is none.
  bool find(Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes);

  // Whether `address` is in a live block. Takes no lock if the chunk is a whole block.
  bool is_live(Chunk* chunk, uint64_t address);

  // The block at `address` became known outside the process. A whole block goes back to the driver
  // when it is freed. In a slab, no block that is freed from now on is reused; in a larger chunk,
  // only this block is not. Such a slab or chunk goes back to the driver with its last live block.
  // False if the program holds no block there.
  bool mark_exported(Chunk* chunk, uint64_t address);

  // Only for units: those of freed blocks that are known outside the process go back to the source.
  void release_known() {
    if (Expandable* units = memory_.strategy.units()) units->release_known_units();
  }

  // Another process got a handle of the block that is this whole chunk (ToldSizes).
  void note_size_told(const Chunk* chunk) { memory_.shared->told_sizes.note(chunk->requested()); }

  // The program is about to wait for the context.
  void before_synchronise() { waiting_.before_synchronise(); }

  // The program has waited for all work that it gave to the context before this ticket was closed.
  void synchronised(Ticket ticket) { memory_.flush_synchronised(ticket); }

  // Releases idle memory beyond the budget. Call it when the driver's free will not wait, for
  // example after a synchronisation.
  void release_excess() { idle_work_.after_synchronise(); }

  // Does what calls of the program do for idle memory, in case the program makes none for long. The
  // background thread calls it. True if there will be more to do.
  bool work_in_background() {
    if (const plan::OwnPlans* made = memory_.plan.think()) {
      memory_.source->plan_made(plan::bytes_of(made->plans()), made->requests());
    }
    return idle_work_.in_background();
  }

  // Calls visit(address, bytes) for each run of addresses that has units behind it, to change who
  // may access them. `visit` may call the source. The source itself sets the access of units that
  // are mapped later.
  template <typename Visitor>
  void for_each_mapped(Visitor visit) {
    if (Expandable* units = memory_.strategy.units()) units->for_each_mapped(visit);
  }

  // Expandable::visit_units_of(); also false if the block does not lie in units.
  template <typename Visitor>
  bool visit_units_of(const Chunk* chunk, uint64_t address, Visitor visit) {
    Expandable* units = memory_.strategy.units();
    return units != nullptr && chunk->is() == Role::range &&
           units->visit_units_of(chunk, address, visit);
  }

  // For a shortage: ContextMemory::release_returnable(). False if nothing went.
  bool release_returnable(uint64_t patience_ns) { return memory_.release_returnable(patience_ns); }

  // Releases all clean memory to the source, without a wait. False if nothing went.
  bool release_clean() {
    waiting_.ask();
    return memory_.source->pays_what_it_owes(/*waits=*/false) &&
           memory_.release_clean(ContextMemory::Units::go, ChunkSupply::Order::waits_not);
  }

  // Releases everything that was freed. The source waits for earlier work, as its own free does.
  bool release_freed() { return memory_.release_all_freed(); }
  uint64_t waiting_bytes() const { return memory_.waiting_bytes(); }

  // WaitingMemory::before_submission(): call it before the program hands work to the device, for
  // any context.
  bool before_submission(bool at_once) { return waiting_.before_submission(at_once); }

  // The context is gone, and its memory with it. Forgets everything without a call to the source.
  // Waits for threads that hold memory in hand.
  void forget_all();

  Usage usage() const { return memory_.usage(); }
  // Bytes that the program does not hold but could get: those that the driver would take back, and
  // those from which a chunk strategy can cut a block of any size. Not while the context may end.
  uint64_t returnable_bytes() { return memory_.returnable_bytes(); }
  uint64_t largest_free() { return memory_.largest_free(); }
  uint64_t allocations() const { return memory_.allocations(); }
  uint64_t frees() const { return memory_.frees(); }
  // Live bytes that the Ledger does not count yet. Negative if it counts too many.
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
