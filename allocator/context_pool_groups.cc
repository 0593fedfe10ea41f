// SPDX-License-Identifier: Apache-2.0
// Requests that may be members of a group (chunk_pools/groups.h).
#include "allocator/context_pool.h"

namespace cistern::alloc {

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

}  // namespace cistern::alloc
