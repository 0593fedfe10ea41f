// SPDX-License-Identifier: Apache-2.0
// The way of an allocation and of a free, then what they seldom need, then questions about a block.
// Then requests that do not go this way: memory of the driver alone, members of groups, and places
// in a plan. Then the beginning and the end.
#include "allocator/context_pool.h"

#include "allocator/shortage.h"

namespace cistern::alloc {

template <typename Miss>
[[gnu::always_inline]] inline int ContextPool::serve(Request& request, uint64_t* address,
                                                     Miss miss) {
  if (!memory_.strategy.take_clean(request)) [[unlikely]] {
    const int code = miss();
    if (code != kSuccess) return code;
  }
  if (request.whole) memory_.count_whole(request.bytes);
  *address = request.address;
  return kSuccess;
}

// The context must not end before the fill is done: the address could belong to the next context by
// then.
template <typename Miss>
int ContextPool::allocate_filled(Request& request, uint64_t* address, Miss miss) {
  const ChunkSupply::InHand until_filled(memory_.supply);
  const int code = serve(request, address, miss);
  if (code == kSuccess && !filled_ahead(*address)) {
    memory_.supply.filler.fill(*address, request.bytes);
  }
  return code;
}

int ContextPool::allocate(uint64_t bytes, unsigned shard, uint64_t* address) {
  Request request{.bytes = bytes, .shard = shard};
  const auto on_miss = [&] { return miss(request); };
  if (memory_.supply.filler.on()) [[unlikely]]
    return allocate_filled(request, address, on_miss);
  return serve(request, address, on_miss);
}

int ContextPool::allocate_clean(uint64_t bytes, unsigned shard, uint64_t* address) {
  Request request{.bytes = bytes, .shard = shard};
  const auto ask = [&] {
    const bool some = waiting_.ask() == WaitingMemory::Asked::some_clean;
    return some && memory_.strategy.take_clean(request) ? kSuccess : kOutOfMemory;
  };
  return memory_.supply.filler.on() ? allocate_filled(request, address, ask)
                                    : serve(request, address, ask);
}

int ContextPool::allocate_in_graph(uint64_t bytes, unsigned shard, GraphRun graph,
                                   uint64_t* address) {
  if (graph.run == 0 || !arenas()) return allocate(bytes, shard, address);
  const ChunkSupply::InHand until_noted(memory_.supply);
  ArenaPart part = memory_.strategy.place(bytes, graph);
  Request request{.bytes = bytes, .shard = shard, .arena = &part};
  const auto on_miss = [&] { return miss(request); };
  const int code = memory_.supply.filler.on() ? allocate_filled(request, address, on_miss)
                                              : serve(request, address, on_miss);
  if (code == kSuccess) memory_.strategy.note_taken(request, graph);
  return code;
}

// Frees a block in a chunk or in a range of units. They have the same pools, but only chunks can
// leave them.
[[gnu::always_inline]] inline uint64_t ContextPool::free_cut(Role role, Chunk* chunk,
                                                             uint64_t address, Ticket latest,
                                                             uint64_t* waiting) {
  Expandable& expandable = memory_.strategy.expandable();
  ChunkPools& chunk_pools =
      role == Role::planned ? memory_.plan.pools() : memory_.strategy.chunk_pools();
  const bool chunked = role != Role::range;
  BlockPool* pool = role == Role::planned ? chunk_pools.pool_at(0)
                    : chunked             ? chunk_pools.pool_of(chunk)
                                          : expandable.pool_of(chunk);
  *waiting = 0;
  if (pool == nullptr) [[unlikely]]
    return 0;
  ChunkList ended;
  const uint64_t freed = pool->free(chunk, address, memory_.shared->reclaim, &ended, latest);
  *waiting = pool->waiting_bytes();
  if (!ended.empty()) [[unlikely]]
    chunk_pools.release_exported(&ended);  // ranges stay
  if (!chunked && pool->look_for_known()) [[unlikely]]
    expandable.release_known(/*all=*/false);
  return freed;
}

[[gnu::always_inline]] inline Freed ContextPool::free_by(const OrderedFree* ordered, Chunk* chunk,
                                                         uint64_t address, int* code, Ticket latest,
                                                         uint64_t* bytes) {
  *code = kSuccess;
  uint64_t freed, waiting;  // the latter in the pool of the block
  const Role role = chunk->is();
  switch (role) {
    case Role::slab:
      freed = memory_.strategy.on_demand().free(chunk, address, latest, &waiting);
      break;
    case Role::split:
    case Role::range:
      freed = free_cut(role, chunk, address, latest, &waiting);
      break;
    case Role::planned:
      freed = free_cut(Role::planned, chunk, address, latest, &waiting);
      break;
    default:
      freed = free_whole(chunk, address, code, latest, ordered);
      waiting = memory_.supply.cache.waiting_bytes();
  }
  if (memory_.strategy.near_bound(waiting)) [[unlikely]]
    waiting_.hold_back_if_over_bound();
  if (memory_.shared->free_extra_work.load(std::memory_order_relaxed) != 0) [[unlikely]]
    do_extra_work(address);
  if (idle_work_.due(memory_.supply.cache)) [[unlikely]]
    idle_work_.after_free();
  *bytes = freed;
  return freed != 0 ? Freed::done : Freed::invalid;
}

Freed ContextPool::free(Chunk* chunk, uint64_t address, int* code, Ticket latest, uint64_t* bytes) {
  return free_by(/*ordered=*/nullptr, chunk, address, code, latest, bytes);
}

Freed ContextPool::free_ordered(Chunk* chunk, uint64_t address, int* code,
                                const OrderedFree& in_driver, uint64_t* bytes) {
  return free_by(&in_driver, chunk, address, code, Reclaim::kNow, bytes);
}

uint64_t ContextPool::free_whole(Chunk* chunk, uint64_t address, int* code, Ticket latest,
                                 const OrderedFree* ordered) {
  ChunkCache& cache = memory_.supply.cache;
  Reclaim& reclaim = memory_.shared->reclaim;
  const bool now = !idle_work_.defers();
  uint64_t requested;
  const auto freed = cache.free(chunk, address, reclaim, &requested, latest, /*refreshes=*/now);
  if (freed == ChunkCache::Freed::not_live) return 0;
  if (freed == ChunkCache::Freed::give_up) {
    *code = memory_.supply.release_for_program(chunk, requested, ordered);
    if (now) cache.refresh(reclaim);
  }
  if (*code == kSuccess) {
    memory_.ledger->live.sub(requested);
  }
  return requested;
}

// --- what they seldom need ---

int ContextPool::miss(Request& request) {
  const auto take_clean = [&] { return memory_.strategy.take_clean(request); };
  if (idle_work_.any_deferred()) [[unlikely]] {
    idle_work_.before_miss();
    if (take_clean()) return kSuccess;
  }
  const WaitingMemory::Asked asked = waiting_.ask();
  const bool again = asked == WaitingMemory::Asked::some_clean || request.ask_first;
  if (again && take_clean()) return kSuccess;
  if (asked != WaitingMemory::Asked::nothing_waits) {
    // With enough memory waiting it is worth as much time as the driver call that it may save, so
    // at worst the request takes twice as long as without us. Fresh memory taken in a hurry would
    // later have to be released as well.
    if (waiting_.take_while_obtain_would_last(request.bytes, take_clean)) return kSuccess;
  }
  Shortage shortage(memory_, waiting_, request);
  if (waiting_.short_lately() && shortage.resolve_elsewhere()) return kSuccess;
  idle_work_.before_obtain(request.bytes);
  const int code = memory_.take_fresh(request);
  return code == kOutOfMemory ? shortage.resolve() : code;
}

bool ContextPool::filled_ahead(uint64_t address) {
  if (!memory_.supply.filler.gathers()) return false;
  const Chunk* chunk = memory_.supply.index->find(address);
  if (chunk == nullptr) return false;
  const Role role = chunk->is();
  if (role == Role::slab) return memory_.strategy.on_demand().fills(chunk);
  if (role == Role::range) return memory_.strategy.expandable().fills(chunk);
  return role == Role::split && memory_.strategy.chunk_pools().fills(chunk);
}

// The work that a free does for other threads and settings.
void ContextPool::do_extra_work(uint64_t freed) {
  memory_.plan.note_freed(freed);
  Garbage* garbage = memory_.garbage;
  if (garbage != nullptr && garbage->due()) {
    garbage->flush();
  }
  if (!memory_.source->marks_anywhere()) waiting_.mark_if_due();
  // Otherwise a thread that is short of memory could see this block come and go in the caches and
  // never get it.
  if (memory_.shared->threads_short_of_memory.load(std::memory_order_relaxed) != 0) {
    memory_.release_returnable(/*patience_ns=*/0, ContextMemory::Units::go, /*freed_ns=*/0);
  }
}

// --- questions about a block ---

bool ContextPool::find(Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes) {
  switch (chunk->is()) {
    case Role::slab:
      return memory_.strategy.on_demand().find(chunk, address, start, bytes);
    case Role::split:
      return memory_.strategy.chunk_pools().find(chunk, address, start, bytes);
    case Role::range:
      return memory_.strategy.expandable().find(chunk, address, start, bytes);
    case Role::planned:
      return memory_.plan.pools().find(chunk, address, start, bytes);
    default:
      return memory_.supply.cache.find(chunk, address, start, bytes);
  }
}

// If a whole chunk changes its role meanwhile, another thread is freeing it or handing it out: then
// either answer is right.
bool ContextPool::is_live(Chunk* chunk, uint64_t address) {
  const Role role = chunk->is();
  if (role == Role::whole || role == Role::direct) {
    return address - chunk->base() < chunk->requested();
  }
  uint64_t start, bytes;
  return cuts_blocks(role) && find(chunk, address, &start, &bytes);
}

bool ContextPool::mark_exported(Chunk* chunk, uint64_t address) {
  switch (chunk->is()) {
    case Role::slab:
      return memory_.strategy.on_demand().mark_exported(chunk, address);
    case Role::split:
      return memory_.strategy.chunk_pools().mark_exported(chunk, address);
    case Role::range:
      return memory_.strategy.expandable().mark_exported(chunk, address);
    case Role::planned:
      return memory_.plan.pools().mark_exported(chunk, address);
    default:
      return memory_.supply.cache.mark_exported(chunk, address);
  }
}

// --- memory of the driver alone ---

// Requests that get a driver allocation of their own (Role::direct), which the driver frees, and
// their fallback if the driver has no memory.

int ContextPool::allocate_direct(uint64_t bytes, unsigned shard, bool pooled, uint64_t* address) {
  const ChunkSupply::InHand until_filled(memory_.supply);
  Request request{.bytes = bytes, .shard = shard, .pooled = pooled};
  if (const int code = memory_.supply.obtain_direct(request); code != kSuccess) {
    if (code != kOutOfMemory || !pooled) return code;
    Step step;
    memory_.flush_garbage();
    if (!memory_.strategy.take_clean(request) && !memory_.take_from_anywhere(request, &step))
      return code;
  }
  return hand_out_direct(request, address);
}

int ContextPool::allocate_at_last(uint64_t bytes, unsigned shard, uint64_t* address) {
  const ChunkSupply::InHand until_filled(memory_.supply);
  Request request{.bytes = bytes, .shard = shard, .pooled = false};
  Step step;
  return memory_.take_from_anywhere(request, &step) ? hand_out_direct(request, address)
                                                    : kOutOfMemory;
}

int ContextPool::allocate_unpooled(uint64_t bytes, unsigned shard, uint64_t* address) {
  const ChunkSupply::InHand until_filled(memory_.supply);
  Request request{.bytes = bytes, .shard = shard, .pooled = false};
  int code = memory_.supply.obtain_direct(request);
  if (code == kOutOfMemory) code = Shortage(memory_, waiting_, request).resolve();
  return code == kSuccess ? hand_out_direct(request, address) : code;
}

int ContextPool::hand_out_direct(const Request& request, uint64_t* address) {
  Ledger& ledger = *memory_.ledger;
  if (!request.pooled) (request.whole ? ledger.unpooled : ledger.unpooled_short).add();
  if (request.whole) memory_.count_whole(request.bytes);
  *address = request.address;
  if (memory_.supply.filler.on() && !filled_ahead(*address)) {
    memory_.supply.filler.fill(*address, request.bytes);
  }
  return kSuccess;
}

// --- members of groups (chunk_pools/groups.h) ---

int ContextPool::allocate_in_group(uint64_t bytes, unsigned shard, Groups::Caller caller,
                                   GraphRun graph, uint64_t* address) {
  const ChunkSupply::InHand until_known(memory_.supply);
  Groups& groups = memory_.groups;
  *address = groups.take_member(caller, bytes);
  if (*address == 0) {
    Request request{.bytes = bytes, .shard = shard};
    if (!take_first_member(request, caller)) {
      const int code = allocate_in_graph(bytes, shard, graph, address);
      if (code == kSuccess) groups.begin(caller, bytes);
      return code;
    }
    *address = request.address;
  }
  if (memory_.supply.filler.on() && !filled_ahead(*address)) {
    memory_.supply.filler.fill(*address, bytes);
  }
  return kSuccess;
}

// No memory is made short for members that may never come.
bool ContextPool::take_first_member(Request& request, Groups::Caller caller) {
  if (Expandable* units = memory_.strategy.units()) {
    return take_first_member(*units, request, caller);
  }
  return take_first_member(memory_.strategy.chunk_pools(), request, caller);
}

template <typename Pools>
bool ContextPool::take_first_member(Pools& pools, Request& request, Groups::Caller caller) {
  Groups& groups = memory_.groups;
  if (pools.take_same(request)) {
    groups.begin(caller, request.bytes);
    return true;
  }
  request.room = groups.room_for(caller, request.bytes);
  if (request.room == 0) return false;
  if (!pools.take_clean_with_room(request)) {
    waiting_.ask();
    if (!pools.take_clean_with_room(request) && pools.take_fresh(request) != kSuccess) return false;
  }
  if (request.whole) {  // there was no memory for a pool
    memory_.count_whole(request.bytes);
    return true;
  }
  const Chunk* chunk = memory_.supply.index->find(request.address);
  BlockPool* pool = pools.pool_of(chunk);
  groups.begin(caller, request.bytes, pool, pool->cut_room(chunk, request.address));
  return true;
}

// --- places in a plan (plan_arena.h) ---

[[gnu::always_inline]] inline bool ContextPool::take_planned(uint64_t bytes, plan::PlanPlace place,
                                                             uint64_t* address) {
  if (!memory_.supply.filler.on() && memory_.plan.take(bytes, place, address)) [[likely]]
    return true;
  return take_planned_late(bytes, place.offset, place.plan_bytes, place.first, address);
}

bool ContextPool::allocate_planned(uint64_t bytes, unsigned thread, uint32_t phase,
                                   uint64_t* address) {
  plan::PlanPlace place;
  bool placed;
  if (!memory_.plan.is_next(bytes, thread, phase, &place, &placed)) [[unlikely]]
    return find_planned(bytes, thread, phase, address);
  return placed && take_planned(bytes, place, address);
}

bool ContextPool::find_planned(uint64_t bytes, unsigned thread, uint32_t phase, uint64_t* address) {
  plan::PlanPlace place;
  return memory_.plan.find(bytes, thread, phase, &place) && take_planned(bytes, place, address);
}

// The place comes in its parts, which stay in registers.
bool ContextPool::take_planned_late(uint64_t bytes, uint64_t offset, uint64_t plan_bytes,
                                    bool first, uint64_t* address) {
  const plan::PlanPlace place{offset, plan_bytes, first};
  if (!memory_.supply.filler.on()) return wait_for_place(bytes, place, address);
  const ChunkSupply::InHand until_filled(memory_.supply);
  if (!memory_.plan.take(bytes, place, address) && !wait_for_place(bytes, place, address)) {
    return false;
  }
  memory_.supply.filler.fill(*address, bytes);
  return true;
}

bool ContextPool::wait_for_place(uint64_t bytes, plan::PlanPlace place, uint64_t* address) {
  PlanArena& plan = memory_.plan;
  const bool more_is_clean = plan.has_chunk_for(place)
                                 ? waiting_.ask() == WaitingMemory::Asked::some_clean
                                 : obtain_planned_chunk(place);
  if (more_is_clean && plan.take(bytes, place, address)) return true;
  plan.note_occupied();
  return false;
}

// If the driver has no memory for the chunk, idle memory of the pools is released for it. From the
// second attempt on that waits for work in flight, as the driver's frees of that memory would have.
bool ContextPool::obtain_planned_chunk(plan::PlanPlace place) {
  PlanArena& plan = memory_.plan;
  MemorySource* source = memory_.source;
  if (!plan.may_obtain(place, source)) return false;
  idle_work_.before_obtain(PlanArena::chunk_bytes(place));
  bool obtained = plan.obtain(place), owed = false;
  if (!obtained && source->can_release_clean()) {
    const bool waits = plan.waits_for_work();
    owed = !source->pays_what_it_owes(waits);
    if (!owed) {
      memory_.release_clean(ContextMemory::Units::go,
                            waits ? ChunkSupply::Order::waits : ChunkSupply::Order::waits_not);
      obtained = plan.obtain(place);
    }
  }
  plan.note_obtained(obtained, owed);
  return obtained;
}

void ContextPool::pass_over_planned(uint64_t bytes, unsigned thread, uint32_t phase) {
  memory_.plan.pass_over(bytes, thread, phase);
}

void ContextPool::note_served(uint64_t bytes, const plan::Caller& caller, uint64_t address) {
  if (memory_.plan.note_served(bytes, caller, address)) {
    memory_.source->request_background_work(/*soon=*/true);
  }
}

// --- beginning and end ---

void ContextPool::init(Shared* shared, MemorySource* source, const DeviceParts& device,
                       uint32_t owner, const ChunkSizes& sizes, const GroupRules& rules) {
  memory_.init(shared, source, device, owner, sizes, rules);
  waiting_.init(&memory_);
  idle_work_.init(&memory_, &waiting_);
  if (!source->marks_anywhere()) shared->free_extra_work.fetch_add(1);
  if (device.plans) shared->free_extra_work.fetch_add(1);
  if (device.garbage == nullptr) return;
  shared->reclaim.graphs().divert_everything();
  shared->free_extra_work.fetch_add(1);
}

void ContextPool::forget_all() {
  memory_.forget_all();
  idle_work_.forget_all();
}

}  // namespace cistern::alloc
