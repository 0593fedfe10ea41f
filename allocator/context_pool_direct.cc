// SPDX-License-Identifier: Apache-2.0
// Requests that are to get a driver allocation of their own (Role::direct), whose free is the
// driver's, and what serves them where the driver has no memory.
#include "allocator/context_pool.h"

namespace cistern::alloc {

int ContextPool::obtain_direct(Request& request) {
  int code;
  Chunk* chunk = supply_.obtain(request.bytes, Role::direct, &code);
  if (chunk == nullptr) return code;
  request.address = chunk->base();
  request.whole = true;
  return code;
}

int ContextPool::allocate_direct(uint64_t bytes, unsigned shard, bool pooled, uint64_t* address) {
  const ChunkSupply::InHand until_filled(supply_);
  Request request{.bytes = bytes, .shard = shard, .pooled = pooled};
  if (const int code = obtain_direct(request); code != kSuccess) {
    if (code != kOutOfMemory || !pooled) return code;
    flush_garbage();
    if (!take_clean(request) && !take_from_anywhere_now(request)) return code;
  }
  return hand_out(request, address);
}

bool ContextPool::take_from_anywhere_now(Request& request) {
  Step step;
  return strategy_.visit(
      [&](auto& strategy) { return strategy.take_from_anywhere(request, &step); });
}

int ContextPool::allocate_at_last(uint64_t bytes, unsigned shard, uint64_t* address) {
  const ChunkSupply::InHand until_filled(supply_);
  Request request{.bytes = bytes, .shard = shard, .pooled = false};
  return take_from_anywhere_now(request) ? hand_out(request, address) : kOutOfMemory;
}

int ContextPool::allocate_unpooled(uint64_t bytes, unsigned shard, uint64_t* address) {
  const ChunkSupply::InHand until_filled(supply_);
  Request request{.bytes = bytes, .shard = shard, .pooled = false};
  int code = obtain_direct(request);
  if (code == kOutOfMemory) code = shortage(request);
  return code == kSuccess ? hand_out(request, address) : code;
}

int ContextPool::hand_out(const Request& request, uint64_t* address) {
  if (!request.pooled) (request.whole ? ledger_->unpooled : ledger_->unpooled_short).add();
  if (request.whole) count_whole(request.bytes);
  *address = request.address;
  if (supply_.filler.on() && !filled_ahead(*address)) {
    supply_.filler.fill(*address, request.bytes);
  }
  return kSuccess;
}

}  // namespace cistern::alloc
