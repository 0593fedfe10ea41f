// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk_pools/blocks.h"

#include <cstring>

#include "allocator/base/os.h"

namespace cistern::alloc {

bool ChunkMap::open(Chunk* owner, ChunkBlock* all) {
  chunk = owner;
  base = owner->base();
  granules = static_cast<uint32_t>(owner->size() / kBlockGranule);
  const uint64_t bytes = uint64_t{granules} * kBlockGranule;
  rounding = bytes < kDriverSharesBelow ? 0 : (0 - bytes) & (kDriverPage - 1);
  live = rooms = waiting = quarantined = filling = 0;
  units = nullptr;
  idle = false;
  heads = own_heads;
  if (regions() > kOwnHeads) {
    heads = static_cast<ChunkBlock**>(os::map(regions() * sizeof *heads));
    if (heads == nullptr) return false;
  } else {
    memset(own_heads, 0, sizeof own_heads);
  }
  all->start = 0;
  all->granules = granules;
  all->exported = 0;
  all->before = all->after = nullptr;
  all->set_map(this);
  heads[0] = all;
  return true;
}

void ChunkMap::close() {
  if (heads != own_heads && heads != nullptr) os::unmap(heads, regions() * sizeof *heads);
}

void ChunkMap::split(ChunkBlock* block, uint32_t front, ChunkBlock* rest) {
  rest->start = block->start + front;
  rest->granules = block->granules - front;
  rest->before = block;
  rest->after = block->after;
  rest->exported = block->exported;
  rest->map_bits = block->map_bits;
  block->granules = front;
  block->after = rest;
  if (rest->after != nullptr) rest->after->before = rest;
  // What starts behind `rest` in its region, if anything, was the first there before.
  ChunkBlock*& head = heads[rest->start / kRegionGranules];
  if (head == nullptr || head->start > rest->start) head = rest;
}

void ChunkMap::join(ChunkBlock* first, ChunkBlock* second) {
  ChunkBlock* after = second->after;
  ChunkBlock*& head = heads[second->start / kRegionGranules];
  if (head == second) {
    const bool same_region =
        after != nullptr && after->start / kRegionGranules == second->start / kRegionGranules;
    head = same_region ? after : nullptr;
  }
  first->granules += second->granules;
  first->after = after;
  if (after != nullptr) after->before = first;
}

ChunkBlock* ChunkMap::around(uint32_t granule) const {
  uint32_t region = granule / kRegionGranules;
  ChunkBlock* block = heads[region];
  if (block != nullptr && block->start > granule) return block->before;
  while (block == nullptr) block = heads[--region];  // a block starts at 0
  while (block->after != nullptr && block->after->start <= granule) block = block->after;
  return block;
}

// What starts next begins where the block ends that is looked for.
ChunkBlock* ChunkMap::at_region(uint32_t region) const {
  const uint32_t start = region * kRegionGranules;
  for (uint32_t with_head = region; with_head < regions(); ++with_head) {
    ChunkBlock* head = heads[with_head];
    if (head != nullptr) return head->start == start ? head : head->before;
  }
  return around(start);
}

// Without memory for more buckets the chains just get longer.
void BlockTable::grow() {
  const auto segment = static_cast<int>(std::bit_width(size_ / kFirst));
  if (segment == kSegments) return;
  if (segments_[segment] == nullptr) {
    const size_t bytes = (kFirst << segment >> 1) * sizeof *segments_[segment];
    segments_[segment] = static_cast<ChunkBlock**>(os::map(bytes));
    if (segments_[segment] == nullptr) return;
  }
  // The new bucket takes its share of the one that had to stand in for it.
  const uint32_t added = size_++;
  if (added > mask_) mask_ = 2 * mask_ + 1;
  ChunkBlock** link = &bucket(added & mask_ >> 1);
  ChunkBlock** moved = &bucket(added);
  while (ChunkBlock* block = *link) {
    if ((hash(block->map(), block->start) & mask_) != added) {
      link = &block->same_bucket;
      continue;
    }
    *link = block->same_bucket;
    block->same_bucket = *moved;
    *moved = block;
  }
}

void BlockTable::clear() {
  memset(first_, 0, sizeof first_);
  for (int i = 1; i < kSegments && (kFirst << i >> 1) < size_; ++i) {
    memset(segments_[i], 0, (kFirst << i >> 1) * sizeof *segments_[i]);
  }
  size_ = kFirst;
  mask_ = kFirst - 1;
  count_ = 0;
  soon_wanted_ = nullptr;
}

}  // namespace cistern::alloc
