// SPDX-License-Identifier: Apache-2.0
// Chunks coming into and leaving a pool of blocks, and the pool's own beginning and end.
#include <climits>

#include "allocator/chunk_pools/block_pool.h"

namespace cistern::alloc {

void BlockPool::init(BlockPages* pages, Ledger* ledger, Garbage* garbage, Place here,
                     uint32_t party, Clean becomes, uint64_t align, bool gathers, ReuseRule rule) {
  begin(ledger, garbage, here, party, gathers, rule, [&] {
    records_.init(pages);
    becomes_ = becomes;
    cleans_in_free_ = becomes != Clean::merged && !gathers && rule != ReuseRule::same_size;
    align_ = granules_for(align);
  });
}

bool BlockPool::add(Chunk* chunk, ChunkMap* map, uint64_t bytes, uint64_t room, Epoch born,
                    uint64_t* address) {
  const uint32_t granules = granules_for(bytes + room);
  LockGuard guard(mutex_);
  if (closed() || !records_.reserve(3)) return false;
  ChunkBlock* all = records_.take();
  if (!map->open(chunk, all)) {
    records_.give_back(all);
    return false;
  }
  map->previous = nullptr;
  map->next = maps_;
  if (maps_ != nullptr) maps_->previous = map;
  maps_ = map;
  newest_bytes_.set(chunk->size());
  chunks_.own_add(map->own ? 0 : 1);
  chunk_bytes_.own_add(chunk->size());
  if (counts_idle()) idle_rounding_.own_add(map->rounding);
  chunk->idle_since = kNotSeen;
  chunk->set_map(map);
  chunk->move_to(here_);
  table_.insert(all);
  insert(all);
  const uint32_t align = granules >= align_ ? align_ : 1;
  *address = bytes + room != 0 && all->fits(granules, align)
                 ? hand_out(all, granules, align, bytes, born)
                 : 0;
  count_if_idle(map);
  return true;
}

// Takes a chunk with nothing live in it out of the pool. Its waiting blocks are no longer queued.
void BlockPool::take_out(ChunkMap* map, ChunkList* out) {
  for (ChunkBlock* block = map->first_block(); block != nullptr;) {
    ChunkBlock* after = block->after;
    remove_free(block);
    if (block->exported != 0 && block->is() == BlockState::waiting) end_quarantine(block->bytes());
    table_.erase(block);
    records_.give_back(block);
    block = after;
  }
  (map->previous == nullptr ? maps_ : map->previous->next) = map->next;
  if (map->previous == nullptr) newest_bytes_.set(maps_ == nullptr ? 0 : maps_->chunk->size());
  if (map->next != nullptr) map->next->previous = map->previous;
  chunks_.own_sub(map->own ? 0 : 1);
  chunk_bytes_.own_sub(map->chunk->size());
  if (counts_idle()) idle_rounding_.own_sub(map->rounding);
  if (map->idle) idle_chunk_bytes_.own_sub(map->chunk->size());
  hand_over(map->chunk, out);
}

// For a chunk in which nothing is parked.
void BlockPool::take_out_idle(ChunkMap* map, ChunkList* out) {
  map->chunk->born = GraphLives::kEverything;
  take_out(map, out);
}

void BlockPool::count_changed(ChunkMap* map) {
  map->idle = !map->idle;
  const uint64_t bytes = map->chunk->size();
  map->idle ? idle_chunk_bytes_.own_add(bytes) : idle_chunk_bytes_.own_sub(bytes);
}

uint64_t BlockPool::idle_rounding() const {
  uint64_t bytes = idle_rounding_.get();
  for (const ChunkMap* map = counts_idle() ? nullptr : maps_; map != nullptr; map = map->next) {
    if (map->live == 0) bytes += map->rounding;
  }
  return bytes;
}

bool BlockPool::any_idle_chunk() {
  LockGuard guard(mutex_);
  const ChunkMap* map = maps_;
  while (map != nullptr && !map->idle_now()) map = map->next;
  return map != nullptr;
}

void BlockPool::collect_idle(Reclaim& reclaim, bool freed_too, ChunkList* out) {
  LockGuard guard(mutex_);
  if (closed()) return;
  refresh_locked(freed_.clean(reclaim), INT_MAX, nullptr);
  // In case the driver refuses a chunk: parked blocks may be in it.
  const Epoch born = parked_bytes() == 0 ? GraphLives::kEverything : 0;
  freed_too = freed_too || freed_is_over(reclaim);
  if (freed_too) remove_freed(nullptr);
  for (ChunkMap* map = maps_; map != nullptr;) {
    ChunkMap* next = map->next;
    if (!map->in_use() && (freed_too || map->waiting == 0)) {
      map->chunk->born = born;
      take_out(map, out);
    }
    map = next;
  }
}

bool BlockPool::freed_is_over(Reclaim& reclaim) {
  Ticket oldest, newest;
  if (parked_bytes() != 0 || garbage_bytes() != 0) return false;
  return !freed_.range(&oldest, &newest) || newest <= freed_.clean(reclaim);
}

void BlockPool::refresh(Reclaim& reclaim) {
  LockGuard guard(mutex_);
  if (closed()) return;
  refresh_oldest(reclaim, INT_MAX, nullptr);
}

IdleChunks BlockPool::see_idle(Tick now) {
  LockGuard guard(mutex_);
  IdleChunks seen;
  for (const ChunkMap* map = maps_; map != nullptr; map = map->next) {
    if (!map->idle_now()) continue;
    if (map->chunk->idle_since == kNotSeen) map->chunk->idle_since = now;
    seen.add(map->chunk->size(), age(now, map->chunk->idle_since));
  }
  return seen;
}

void BlockPool::collect_aged(Tick now, uint32_t least, ChunkList* out, uint64_t most) {
  LockGuard guard(mutex_);
  if (closed()) return;
  for (ChunkMap* map = maps_; map != nullptr; map = map->next) {
    const Tick since = map->chunk->idle_since;
    if (!map->idle_now() || since == kNotSeen || age(now, since) < least) continue;
    if (map->chunk->size() > most) continue;
    return take_out_idle(map, out);
  }
}

// The newest chunk is the first in the list.
void BlockPool::collect_one_idle(ChunkList* out, bool newest_too) {
  LockGuard guard(mutex_);
  ChunkMap* oldest = nullptr;
  for (ChunkMap* map = closed() ? nullptr : maps_; map != nullptr; map = map->next) {
    if (map->idle_now() && (newest_too || map != maps_)) oldest = map;
  }
  if (oldest != nullptr) take_out_idle(oldest, out);
}

// Takes the waiting and parked blocks of `only` out of the queue; with nullptr, those of every
// chunk in which nothing is live.
void BlockPool::remove_freed(const ChunkMap* only) {
  freed_.remove_if([only](const ChunkBlock* block, bool) {
    const ChunkMap* map = block->map();
    return only == nullptr ? !map->in_use() : map == only;
  });
}

void BlockPool::forget_all() {
  LockGuard guard(mutex_);
  forget_blocks();
  table_.clear();
  records_.reset();
  maps_ = nullptr;
  holes_ = known_ = nullptr;
  look_from_.set(0);
  unmerged_ = false;
  chunks_.set(0);
  chunk_bytes_.set(0);
  newest_bytes_.set(0);
  moving_bytes_.set(0);
  room_bytes_.set(0);
  idle_rounding_.set(0);
  idle_chunk_bytes_.set(0);
}

}  // namespace cistern::alloc
