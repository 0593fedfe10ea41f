// SPDX-License-Identifier: Apache-2.0
// Requests that have a place in a plan (plan_arena.h).
#include "allocator/context_pool.h"

namespace cistern::alloc {

bool ContextPool::allocate_planned(uint64_t bytes, unsigned shard, uint64_t* address) {
  PlanArena& plan = memory_.plan;
  uint64_t offset;
  if (!plan.place(bytes, &offset)) return false;
  const ChunkSupply::InHand until_filled(memory_.supply);
  if (!plan.has_chunk()) idle_work_.before_obtain(plan.chunk_bytes());
  Request request{.bytes = bytes, .shard = shard};
  if (!plan.take(request, offset)) return false;
  *address = request.address;
  if (memory_.supply.filler.on()) memory_.supply.filler.fill(*address, bytes);
  return true;
}

void ContextPool::pass_over_planned(uint64_t bytes) {
  uint64_t offset;
  memory_.plan.place(bytes, &offset);
}

}  // namespace cistern::alloc
