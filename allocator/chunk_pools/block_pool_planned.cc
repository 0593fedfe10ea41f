// SPDX-License-Identifier: Apache-2.0
// Blocks at places that the caller names.
#include <climits>

#include "allocator/chunk_pools/block_pool.h"

namespace cistern::alloc {

uint64_t BlockPool::allocate_at(uint64_t offset, uint64_t bytes, Reclaim& reclaim) {
  const auto start = static_cast<uint32_t>(offset / kBlockGranule);
  const uint32_t granules = granules_for(bytes);
  LockGuard guard(mutex_);
  if (closed() || maps_ == nullptr || !records_.reserve(2)) return 0;
  if (start >= maps_->granules || granules > maps_->granules - start) return 0;
  if (granules >= align_ && ((maps_->base / kBlockGranule + start) & (align_ - 1)) != 0) return 0;
  refresh_oldest(reclaim, /*most=*/32, nullptr);
  ChunkBlock* block = cut_out(start, granules);
  if (block == nullptr && waiting_bytes() != 0) {
    refresh_oldest(reclaim, INT_MAX, nullptr);
    block = cut_out(start, granules);
  }
  return block == nullptr ? 0 : become_live(block, bytes, reclaim.epoch());
}

// A block of just that place, which is in no bin, or nullptr. Neighbours that became clean one by
// one are joined only as far as it takes: the next request often wants one of them as it is.
ChunkBlock* BlockPool::cut_out(uint32_t start, uint32_t granules) {
  ChunkMap* map = maps_;
  ChunkBlock* block = table_.find(map, start);
  if (block == nullptr) block = map->around(start);
  const uint32_t end = start + granules;
  const auto end_of = [](const ChunkBlock* one) { return one->start + one->granules; };
  for (const ChunkBlock* one = block;; one = one->after) {
    if (one->is() != BlockState::clean) return nullptr;
    if (end_of(one) >= end) break;
  }
  remove(block);
  while (end_of(block) < end) {
    remove(block->after);
    join(block, block->after);
  }
  if (block->start != start) {
    ChunkBlock* rest = split(block, start - block->start);
    insert(block);
    block = rest;
  }
  if (block->granules != granules) insert(split(block, granules));
  return block;
}

}  // namespace cistern::alloc
