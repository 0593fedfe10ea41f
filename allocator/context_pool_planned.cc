// SPDX-License-Identifier: Apache-2.0
// Requests that have a place in a plan (plan_arena.h).
#include "allocator/context_pool.h"

namespace cistern::alloc {

bool ContextPool::allocate_planned(uint64_t bytes, unsigned shard, uint64_t* address) {
  PlanArena& plan = memory_.plan;
  plan::PlanPlace place;
  if (!plan.place(bytes, &place)) return false;
  const ChunkSupply::InHand until_filled(memory_.supply);
  // A chunk that the driver has not is not asked for again before the next period.
  if (!plan.has_chunk_for(place)) {
    if (!place.begins) return false;
    make_room_for_plan(place.plan_bytes);
  }
  Request request{.bytes = bytes, .shard = shard};
  if (!plan.take(request, place)) return false;
  *address = request.address;
  if (memory_.supply.filler.on()) memory_.supply.filler.fill(*address, bytes);
  return true;
}

void ContextPool::pass_over_planned(uint64_t bytes) {
  plan::PlanPlace place;
  memory_.plan.place(bytes, &place);
}

void ContextPool::note_served(uint64_t bytes, uint64_t address) {
  if (memory_.plan.note_served(bytes, address)) {
    memory_.source->request_background_work(/*soon=*/true);
  }
}

// What the pools keep is what the plan takes over.
void ContextPool::make_room_for_plan(uint64_t bytes) {
  idle_work_.before_obtain(bytes);
  if (memory_.source->can_release_clean() && memory_.source->pays_what_it_owes(/*waits=*/false)) {
    memory_.release_clean();
  }
}

}  // namespace cistern::alloc
