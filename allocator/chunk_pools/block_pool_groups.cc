// SPDX-License-Identifier: Apache-2.0
// Room behind a block for others of its group (groups.h).
#include <climits>

#include "allocator/chunk_pools/block_pool.h"

namespace cistern::alloc {

ChunkBlock* BlockPool::cut_room(const Chunk* chunk, uint64_t address) {
  LockGuard guard(mutex_);
  ChunkBlock* block = live_at(chunk, address);
  if (block == nullptr) return nullptr;
  const uint32_t granules = granules_for(block->requested);
  if (block->granules == granules || !records_.reserve(1)) return nullptr;
  ChunkBlock* room = split(block, granules);
  become_room(room);
  return room;
}

bool BlockPool::only_room_in_use(const ChunkBlock* room) {
  LockGuard guard(mutex_);
  return !closed() && room->map()->live == 1;
}

uint64_t BlockPool::allocate_same(uint64_t bytes, Reclaim& reclaim) {
  const uint32_t granules = granules_for(bytes);
  LockGuard guard(mutex_);
  if (closed()) return 0;
  refresh_oldest(reclaim, INT_MAX, nullptr);
  ChunkBlock* block = find_kept(granules, bytes);
  return block == nullptr ? 0 : hand_out(block, granules, 1, bytes, reclaim.epoch());
}

void BlockPool::become_room(ChunkBlock* block) {
  block->become(BlockState::room);
  block->exported = 0;
  block->asked_bits = 0;  // nobody asked for it
  ++block->map()->live;
  ++block->map()->rooms;
  room_bytes_.own_add(block->bytes());
}

uint64_t BlockPool::take_member(ChunkBlock** room, uint64_t bytes, Epoch born) {
  const uint32_t granules = granules_for(bytes);
  LockGuard guard(mutex_);
  ChunkBlock* block = *room;
  if (closed() || !records_.reserve(2)) return 0;
  if (granules >= align_ && block->to_aligned(align_) != 0) return 0;
  if (block->granules < granules && !extend_room(block, granules)) return 0;
  room_bytes_.own_sub(block->bytes());
  if (ChunkMap* map = block->map(); map->live == map->rooms--) {
    idle_rounding_.own_sub(map->rounding);
  }
  *room = nullptr;
  if (block->granules != granules) {
    *room = split(block, granules);
    become_room(*room);
  }
  block->become(BlockState::live);
  block->born = born;
  block->requested = bytes;
  note_handed_out(bytes);
  return block->address();
}

bool BlockPool::extend_room(ChunkBlock* room, uint32_t granules) {
  ChunkBlock* after = room->after;
  if (after == nullptr || after->is() != BlockState::clean) return false;
  if (uint64_t{room->granules} + after->granules < granules) return false;
  room_bytes_.own_sub(room->bytes());
  remove(after);
  join(room, after);
  if (room->granules != granules) insert(split(room, granules));
  room_bytes_.own_add(room->bytes());
  return true;
}

// The room is joined with clean memory behind it even if the strategy merges later, because it was
// cut from there.
uint64_t BlockPool::give_up_room(ChunkBlock* room, ChunkList* ended) {
  LockGuard guard(mutex_);
  if (closed()) return 0;
  ChunkMap* map = room->map();
  const uint64_t bytes = room->bytes();
  room_bytes_.own_sub(bytes);
  --map->live;
  --map->rooms;
  ChunkBlock* after = room->after;
  if (after != nullptr && after->is() == BlockState::clean) {
    remove(after);
    join(room, after);
  }
  make_clean(room, nullptr);
  end_if_over(map, ended);
  return bytes;
}

// Blocks at places that the caller names.

uint64_t BlockPool::allocate_at(uint64_t offset, uint64_t bytes, Reclaim& reclaim) {
  const auto start = static_cast<uint32_t>(offset / kBlockGranule);
  const uint32_t granules = granules_for(bytes);
  LockGuard guard(mutex_);
  if (closed() || maps_ == nullptr) return 0;
  if (align_ != 1 && granules >= align_) [[unlikely]] {
    if (((maps_->base / kBlockGranule + start) & (align_ - 1)) != 0) return 0;
  }
  ChunkBlock* block = waiting_bytes() == 0 ? table_.find_another(maps_, start) : nullptr;
  if (block != nullptr && block->granules == granules && block->is() == BlockState::clean) {
    count_taken(block);
  } else {
    block = cut_out(start, granules, reclaim);
  }
  if (block == nullptr) return 0;
  become_live(block, maps_, bytes, reclaim.epoch());
  return maps_->base + offset;
}

// A clean block of exactly this place, in no bin; nullptr if some of the memory is not clean.
ChunkBlock* BlockPool::cut_out(uint32_t start, uint32_t granules, Reclaim& reclaim) {
  constexpr int kRefreshedPerCall = 32;
  refresh_oldest(reclaim, kRefreshedPerCall, nullptr);
  ChunkBlock* block = cut_from(table_.find_another(maps_, start), start, granules);
  if (block != nullptr || waiting_bytes() == 0) return block;
  refresh_oldest(reclaim, INT_MAX, nullptr);
  return cut_from(table_.find_another(maps_, start), start, granules);
}

// Cuts the place from `block`, which begins there (nullptr: no block does, so it looks for the one
// around it), and from the blocks behind it. It joins only as many neighbours as needed, because
// the next request often wants one of them as it is.
ChunkBlock* BlockPool::cut_from(ChunkBlock* block, uint32_t start, uint32_t granules) {
  if (start >= maps_->granules || granules > maps_->granules - start) return nullptr;
  if (!records_.reserve(2)) return nullptr;
  if (block == nullptr) block = maps_->around(start);
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
