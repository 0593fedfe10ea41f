// SPDX-License-Identifier: Apache-2.0
// Requests that get a driver allocation of their own (Role::direct), which the driver frees, and
// their fallback if the driver has no memory.
#include "allocator/context_pool.h"
#include "allocator/shortage.h"

namespace cistern::alloc {

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

// Requests that may be members of a group (chunk_pools/groups.h).

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

// Requests that have a place in a plan (plan_arena.h).

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

}  // namespace cistern::alloc
