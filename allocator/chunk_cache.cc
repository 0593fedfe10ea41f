// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk_cache.h"

#include <algorithm>

#include "allocator/reclaim.h"

namespace cistern::alloc {
namespace {

constexpr int kProbes = 32;

uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

uint64_t device_bytes(const Chunk* chunk) { return round_up(chunk->size(), kDriverPage); }

// The largest chunk that may serve `bytes`.
uint64_t largest_for(uint64_t bytes) {
  return std::min(round_up(bytes, kDriverPage), bytes + bytes / 7);  // (c - b) / c <= 1/8
}

}  // namespace

Chunk* ChunkCache::take(uint64_t bytes, const Reclaim& reclaim) {
  LockGuard guard(mutex_);
  harvest(reclaim.clean());
  Chunk* chunk = bins_.find(bytes, largest_for(bytes), kProbes);
  if (chunk != nullptr) {
    remove_idle(chunk);
    chunk->become(Role::whole);
    chunk->set_requested(bytes);
  }
  return chunk;
}

ChunkCache::Freed ChunkCache::free(Chunk* chunk, uint64_t address, const Reclaim& reclaim,
                                   uint64_t* requested) {
  LockGuard guard(mutex_);
  if (!held(chunk) || chunk->base() != address) return Freed::not_held;
  *requested = chunk->requested();
  if (chunk->is() == Role::direct || chunk->exported.load(std::memory_order_relaxed)) {
    chunk->become(Role::released);
    return Freed::give_up;
  }
  push_waiting(chunk, reclaim);
  return Freed::cached;
}

void ChunkCache::keep_waiting(Chunk* chunk, const Reclaim& reclaim) {
  LockGuard guard(mutex_);
  push_waiting(chunk, reclaim);
}

void ChunkCache::push_waiting(Chunk* chunk, const Reclaim& reclaim) {
  chunk->become(Role::waiting);
  chunk->set_stamp(reclaim.stamp());
  chunk->next = nullptr;
  (newest_waiting_ == nullptr ? oldest_waiting_ : newest_waiting_->next) = chunk;
  newest_waiting_ = chunk;
  waiting_bytes_.own_add(chunk->size());
  returnable_bytes_.own_add(device_bytes(chunk));
}

bool ChunkCache::held(const Chunk* chunk) const {
  const bool mine = chunk->owner.load(std::memory_order_relaxed) == owner_;
  return mine && (chunk->is() == Role::whole || chunk->is() == Role::direct);
}

bool ChunkCache::find(Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes) {
  LockGuard guard(mutex_);
  if (!held(chunk) || !chunk->contains(address)) return false;
  if (address - chunk->base() >= chunk->requested()) return false;
  *start = chunk->base();
  *bytes = chunk->requested();
  return true;
}

bool ChunkCache::mark_exported(Chunk* chunk, uint64_t address) {
  LockGuard guard(mutex_);
  if (!held(chunk) || !chunk->contains(address)) return false;
  chunk->exported.store(true, std::memory_order_relaxed);
  return true;
}

void ChunkCache::harvest(Ticket clean) {
  while (oldest_waiting_ != nullptr && oldest_waiting_->stamp() <= clean) {
    Chunk* chunk = oldest_waiting_;
    oldest_waiting_ = chunk->next;
    if (oldest_waiting_ == nullptr) newest_waiting_ = nullptr;
    waiting_bytes_.own_sub(chunk->size());
    returnable_bytes_.own_sub(device_bytes(chunk));
    insert_idle(chunk);
  }
}

void ChunkCache::insert_idle(Chunk* chunk) {
  chunk->become(Role::idle);
  bins_.insert(chunk);
  chunk->older = youngest_idle_;
  chunk->younger = nullptr;
  (youngest_idle_ == nullptr ? oldest_idle_ : youngest_idle_->younger) = chunk;
  youngest_idle_ = chunk;
  idle_bytes_.own_add(chunk->size());
  returnable_bytes_.own_add(device_bytes(chunk));
}

void ChunkCache::remove_idle(Chunk* chunk) {
  bins_.remove(chunk);
  (chunk->older == nullptr ? oldest_idle_ : chunk->older->younger) = chunk->younger;
  (chunk->younger == nullptr ? youngest_idle_ : chunk->younger->older) = chunk->older;
  idle_bytes_.own_sub(chunk->size());
  returnable_bytes_.own_sub(device_bytes(chunk));
}

void ChunkCache::add_idle(ChunkList* chunks) {
  if (chunks->head == nullptr) return;
  LockGuard guard(mutex_);
  while (Chunk* chunk = chunks->pop()) insert_idle(chunk);
}

void ChunkCache::refresh(const Reclaim& reclaim) {
  LockGuard guard(mutex_);
  harvest(reclaim.clean());
}

void ChunkCache::collect_idle(uint64_t keep, const Reclaim& reclaim, ChunkList* out) {
  LockGuard guard(mutex_);
  harvest(reclaim.clean());
  while (idle_bytes_.get() > keep) {
    Chunk* chunk = oldest_idle_;
    remove_idle(chunk);
    chunk->become(Role::released);
    out->push(chunk);
  }
}

void ChunkCache::collect_all(ChunkList* out) {
  LockGuard guard(mutex_);
  while (oldest_waiting_ != nullptr) {
    Chunk* chunk = oldest_waiting_;
    oldest_waiting_ = chunk->next;
    waiting_bytes_.own_sub(chunk->size());
    returnable_bytes_.own_sub(device_bytes(chunk));
    chunk->become(Role::released);
    out->push(chunk);
  }
  newest_waiting_ = nullptr;
  while (oldest_idle_ != nullptr) {
    Chunk* chunk = oldest_idle_;
    remove_idle(chunk);
    chunk->become(Role::released);
    out->push(chunk);
  }
}

bool ChunkCache::waiting_range(Ticket* oldest, Ticket* newest) {
  LockGuard guard(mutex_);
  if (oldest_waiting_ == nullptr) return false;
  *oldest = oldest_waiting_->stamp();
  *newest = newest_waiting_->stamp();
  return true;
}

uint64_t ChunkCache::largest_idle() {
  LockGuard guard(mutex_);
  return bins_.largest();
}

void ChunkCache::drop() {
  LockGuard guard(mutex_);
  bins_ = {};
  oldest_idle_ = youngest_idle_ = oldest_waiting_ = newest_waiting_ = nullptr;
  idle_bytes_.set(0);
  waiting_bytes_.set(0);
  returnable_bytes_.set(0);
}

}  // namespace cistern::alloc
