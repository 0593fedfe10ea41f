// SPDX-License-Identifier: Apache-2.0
// Requests that are to get a driver allocation of their own (Role::direct), whose free is the
// driver's, and what serves them where the driver has no memory.
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
    if (!memory_.take_clean(request) && !memory_.take_from_anywhere(request, &step)) return code;
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

}  // namespace cistern::alloc
