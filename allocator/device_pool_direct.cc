// SPDX-License-Identifier: Apache-2.0
// Requests that get a driver allocation of their own (Role::direct), whose free is the driver's.
#include "allocator/device_pool.h"

namespace cistern::alloc {

int DevicePool::obtain_direct(Request& request) {
  int code;
  Chunk* chunk = supply_.obtain(request.bytes, Role::direct, &code);
  if (chunk == nullptr) return code;
  request.address = chunk->base();
  request.whole = true;
  return code;
}

int DevicePool::allocate_direct(uint64_t bytes, unsigned shard, bool pooled, uint64_t* address) {
  const ChunkSupply::Carrying until_filled(supply_);
  Request request{.bytes = bytes, .shard = shard, .pooled = pooled};
  if (const int code = obtain_direct(request); code != kSuccess) {
    if (code != kOutOfMemory) return code;
    drain_garbage();
    Step step;
    const auto squeeze = [&](auto& strategy) { return strategy.squeeze_in(request, &step); };
    if (!(pooled && take_clean(request)) && !strategy_.visit(squeeze)) return code;
  }
  return hand_out(request, address);
}

int DevicePool::allocate_unpooled(uint64_t bytes, unsigned shard, uint64_t* address) {
  const ChunkSupply::Carrying until_filled(supply_);
  Request request{.bytes = bytes, .shard = shard, .pooled = false};
  int code = obtain_direct(request);
  if (code == kOutOfMemory) code = shortage(request);
  return code == kSuccess ? hand_out(request, address) : code;
}

int DevicePool::hand_out(const Request& request, uint64_t* address) {
  if (!request.pooled) (request.whole ? ledger_->unpooled : ledger_->unpooled_short).add();
  if (request.whole) count_whole(request.bytes);
  *address = request.address;
  if (supply_.filler.on() && !filled_ahead(*address)) {
    supply_.filler.fill(*address, request.bytes);
  }
  return kSuccess;
}

}  // namespace cistern::alloc
