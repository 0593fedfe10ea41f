// SPDX-License-Identifier: Apache-2.0
// Requests that have a place in a plan (plan_arena.h).
#include "allocator/context_pool.h"

namespace cistern::alloc {

bool ContextPool::allocate_planned(uint64_t bytes, unsigned shard, unsigned thread, uint32_t phase,
                                   uint64_t* address) {
  PlanArena& plan = memory_.plan;
  plan::PlanPlace place;
  if (!plan.place(bytes, thread, phase, &place)) return false;
  const ChunkSupply::InHand until_filled(memory_.supply);
  Request request{.bytes = bytes, .shard = shard};
  if (!take_planned(request, place)) {
    plan.note_occupied();
    return false;
  }
  *address = request.address;
  if (memory_.supply.filler.on()) memory_.supply.filler.fill(*address, bytes);
  return true;
}

bool ContextPool::take_planned(Request& request, plan::PlanPlace place) {
  PlanArena& plan = memory_.plan;
  if (!plan.has_chunk_for(place) && !obtain_planned_chunk(place)) return false;
  if (plan.take(request, place)) return true;
  return waiting_.ask() == WaitingMemory::Asked::some_clean && plan.take(request, place);
}

// The idle memory of the pools goes for it where the driver has no other. From the second time on
// that waits for work in flight, as the driver's frees of that memory would have.
bool ContextPool::obtain_planned_chunk(plan::PlanPlace place) {
  PlanArena& plan = memory_.plan;
  MemorySource* source = memory_.source;
  if (!plan.may_obtain(place, source)) return false;
  idle_work_.before_obtain(place.plan_bytes);
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
  plan::PlanPlace place;
  memory_.plan.place(bytes, thread, phase, &place);
}

void ContextPool::note_served(uint64_t bytes, const plan::Caller& caller, uint64_t address) {
  if (memory_.plan.note_served(bytes, caller, address)) {
    memory_.source->request_background_work(/*soon=*/true);
  }
}

}  // namespace cistern::alloc
