// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk/chunk_cache.h"

#include <algorithm>
#include <climits>

#include "allocator/base/source.h"
#include "allocator/reclaim/reclaim.h"

namespace cistern::alloc {
namespace {

constexpr int kProbes = 32;

uint64_t device_bytes(const Chunk* chunk) { return round_up(chunk->size(), kDriverPage); }

// The largest chunk that may serve `bytes`.
uint64_t largest_for(uint64_t bytes) {
  return std::min(round_up(bytes, kDriverPage), bytes + bytes / 7);  // (c - b) / c <= 1/8
}

}  // namespace

void ChunkCache::init(uint32_t owner, uint32_t party, Garbage* garbage, ReuseRule rule) {
  freed_.join(garbage, &mutex_, party);
  LockGuard guard(mutex_);
  owner_ = owner;
  same_size_ = rule == ReuseRule::same_size;
  closed_ = false;
  allocations.set(0);
  frees.set(0);
  reserved.set(0);
  recently_used.reset();
  count_idle_of(nullptr);
}

void ChunkCache::close() {
  LockGuard guard(mutex_);
  closed_ = true;
}

Chunk* ChunkCache::take(uint64_t bytes, Role role, Reclaim& reclaim) {
  return take_found(bytes, role, reclaim,
                    [=, this] { return bins_.find(bytes, largest_for(bytes), kProbes); });
}

Chunk* ChunkCache::take_equal(uint64_t bytes, Reclaim& reclaim) {
  return take_found(bytes, Role::whole, reclaim,
                    [=, this] { return bins_.find(bytes, bytes, INT_MAX); });
}

Chunk* ChunkCache::take_least(uint64_t bytes, Reclaim& reclaim) {
  return take_found(bytes, Role::whole, reclaim, [=, this] { return bins_.find_least(bytes); });
}

Chunk* ChunkCache::take_any(uint64_t bytes, Reclaim& reclaim) {
  return take_found(bytes, Role::released, reclaim, [=, this] {
    admit_cut_locked();
    return bins_.find(bytes, UINT64_MAX, kProbes);
  });
}

void ChunkCache::admit_cut() {
  LockGuard guard(mutex_);
  admit_cut_locked();
}

void ChunkCache::admit_cut_locked() {
  if (!same_size_) return;
  for (Chunk* chunk = oldest_idle_; chunk != nullptr; chunk = chunk->younger) {
    if (!chunk->cut) continue;
    chunk->cut = false;
    bins_.insert(chunk);
  }
}

// Without the lock: whether there might be a chunk. One that another thread frees or moves at this
// moment may be missed, as if it had come a moment later.
bool ChunkCache::may_serve(uint64_t bytes, const Reclaim& reclaim) const {
  return parked_bytes() != 0 || freed_.has_clean(freed_.clean(reclaim)) || idle_bytes() >= bytes;
}

template <typename Find>
Chunk* ChunkCache::take_found(uint64_t bytes, Role role, Reclaim& reclaim, Find find) {
  if (!may_serve(bytes, reclaim)) return nullptr;
  LockGuard guard(mutex_);
  if (closed_) [[unlikely]]
    return nullptr;
  refresh_locked(reclaim);
  Chunk* chunk = find();
  if (chunk != nullptr) {
    remove_idle(chunk);
    chunk->become(role);
    chunk->set_requested(bytes);
    chunk->born = reclaim.epoch();
    note_use();
    if (role == Role::whole) count_allocation(bytes);
  }
  return chunk;
}

ChunkCache::Freed ChunkCache::free(Chunk* chunk, uint64_t address, Reclaim& reclaim,
                                   uint64_t* requested, Ticket latest, bool refreshes) {
  LockGuard guard(mutex_);
  const Place place = chunk->at();
  if (!is_live(place) || chunk->base() != address) return Freed::not_live;
  *requested = chunk->requested();
  if (place.role() == Role::direct || chunk->exported.load(std::memory_order_relaxed)) {
    chunk->become(Role::released);
    pick_up();
    return Freed::give_up;
  }
  count_free(*requested);
  count_freed(chunk);
  freed_.push(chunk, chunk->born, reclaim, latest);
  if (refreshes) refresh_locked(reclaim);
  return Freed::cached;
}

void ChunkCache::count_allocation(uint64_t requested) {
  live_.own_add(requested);
  allocations.own_add();
}

void ChunkCache::count_free(uint64_t requested) {
  live_.own_sub(requested);
  frees.own_add();
}

void ChunkCache::count_obtained(uint64_t requested) {
  LockGuard guard(mutex_);
  count_allocation(requested);
}

void ChunkCache::count_released(uint64_t requested) {
  LockGuard guard(mutex_);
  count_free(requested);
}

void ChunkCache::put_back(Chunk* chunk, Reclaim& reclaim) {
  LockGuard guard(mutex_);
  count_freed(chunk);
  if (!chunk->exported.load(std::memory_order_relaxed)) {
    return freed_.put_back(chunk, chunk->born, reclaim);
  }
  refused_.push(chunk);
  refused_bytes_.own_add(chunk->size());
}

void ChunkCache::collect_refused(ChunkList* out) {
  if (!any_refused()) return;
  LockGuard guard(mutex_);
  if (!closed_) collect_refused_locked(out);
}

void ChunkCache::collect_refused_locked(ChunkList* out) {
  while (Chunk* chunk = refused_.pop()) {
    refused_bytes_.own_sub(chunk->size());
    returnable_bytes_.own_sub(device_bytes(chunk));
    chunk->become(Role::released);
    out->push(chunk);
  }
}

void ChunkCache::count_freed(Chunk* chunk) {
  chunk->become(Role::waiting);
  returnable_bytes_.own_add(device_bytes(chunk));
}

bool ChunkCache::is_live(Place place) const {
  const bool mine = !closed_ && place.owner() == owner_;
  return mine && (place.role() == Role::whole || place.role() == Role::direct);
}

bool ChunkCache::find(Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes) {
  LockGuard guard(mutex_);
  if (!is_live(chunk->at()) || !chunk->contains(address)) return false;
  if (address - chunk->base() >= chunk->requested()) return false;
  *start = chunk->base();
  *bytes = chunk->requested();
  return true;
}

bool ChunkCache::mark_exported(Chunk* chunk, uint64_t address) {
  LockGuard guard(mutex_);
  if (!is_live(chunk->at()) || !chunk->contains(address)) return false;
  chunk->exported.store(true, std::memory_order_relaxed);
  return true;
}

void ChunkCache::refresh_locked(Reclaim& reclaim) {
  if (freed_.parked_may_leave(reclaim)) [[unlikely]]
    freed_.unpark(reclaim);
  const Ticket clean = freed_.clean(reclaim);
  while (freed_.has_clean(clean)) {
    Chunk* chunk = freed_.pop();
    returnable_bytes_.own_sub(device_bytes(chunk));
    insert_idle(chunk);
  }
}

void ChunkCache::insert_idle(Chunk* chunk) {
  chunk->become(Role::idle);
  chunk->idle_since = kNotSeen;
  if (!apart(chunk)) [[likely]]
    bins_.insert(chunk);
  chunk->older = youngest_idle_;
  chunk->younger = nullptr;
  (youngest_idle_ == nullptr ? oldest_idle_ : youngest_idle_->younger) = chunk;
  youngest_idle_ = chunk;
  idle_bytes_.own_add(chunk->size());
  returnable_bytes_.own_add(device_bytes(chunk));
}

void ChunkCache::remove_idle(Chunk* chunk) {
  if (!apart(chunk)) [[likely]]
    bins_.remove(chunk);
  (chunk->older == nullptr ? oldest_idle_ : chunk->older->younger) = chunk->younger;
  (chunk->younger == nullptr ? youngest_idle_ : chunk->younger->older) = chunk->older;
  idle_bytes_.own_sub(chunk->size());
  returnable_bytes_.own_sub(device_bytes(chunk));
}

void ChunkCache::add_idle(ChunkList* chunks) {
  if (chunks->empty()) return;
  LockGuard guard(mutex_);
  while (Chunk* chunk = chunks->pop()) insert_idle(chunk);
}

void ChunkCache::refresh(Reclaim& reclaim) {
  LockGuard guard(mutex_);
  refresh_locked(reclaim);
}

void ChunkCache::unpark_everything() {
  LockGuard guard(mutex_);
  freed_.unpark_everything();
}

// A parked chunk that the driver will not take back must be parked again.
void ChunkCache::collect_one_freed(Chunk* chunk, bool parked, ChunkList* out) {
  chunk->born = parked ? ParkedSpan::born(chunk->stamp()) : GraphLives::kEverything;
  returnable_bytes_.own_sub(device_bytes(chunk));
  chunk->become(Role::released);
  out->push(chunk);
}

void ChunkCache::collect_one_idle(Chunk* chunk, ChunkList* out) {
  remove_idle(chunk);
  chunk->born = GraphLives::kEverything;
  chunk->become(Role::released);
  out->push(chunk);
}

void ChunkCache::collect_idle(uint64_t keep, Reclaim& reclaim, ChunkList* out) {
  LockGuard guard(mutex_);
  if (closed_) return;
  refresh_locked(reclaim);
  freed_.unpark_while(
      [=, this] { return idle_or_parked_bytes() > keep && parked_bytes() > keep / 2; });
  if (oldest_idle_ != nullptr && idle_or_parked_bytes() > keep) collect_one_idle(oldest_idle_, out);
}

// Chunks that no sweep has seen are the youngest, so they are at the end of the list.
IdleChunks ChunkCache::see_idle(Tick now) {
  LockGuard guard(mutex_);
  for (Chunk* c = youngest_idle_; c != nullptr && c->idle_since == kNotSeen; c = c->older) {
    c->idle_since = now;
  }
  IdleChunks seen;
  if (oldest_idle_ != nullptr) seen.add(idle_bytes_.get(), age(now, oldest_idle_->idle_since));
  return seen;
}

void ChunkCache::collect_aged(Tick now, uint32_t least, ChunkList* out, uint64_t most) {
  LockGuard guard(mutex_);
  for (Chunk* chunk = closed_ ? nullptr : oldest_idle_; chunk != nullptr; chunk = chunk->younger) {
    if (chunk->idle_since == kNotSeen || age(now, chunk->idle_since) < least) return;
    if (chunk->size() <= most) return collect_one_idle(chunk, out);
  }
}

void ChunkCache::collect_clean(Reclaim& reclaim, ChunkList* out) {
  LockGuard guard(mutex_);
  if (closed_) return;
  refresh_locked(reclaim);
  while (oldest_idle_ != nullptr) collect_one_idle(oldest_idle_, out);
}

void ChunkCache::collect_all(ChunkList* out) {
  LockGuard guard(mutex_);
  if (closed_) return;
  collect_refused_locked(out);
  freed_.remove_if([&](Chunk* chunk, bool parked) {
    collect_one_freed(chunk, parked, out);
    return true;
  });
  while (oldest_idle_ != nullptr) collect_one_idle(oldest_idle_, out);
}

bool ChunkCache::waiting_range(Ticket* oldest, Ticket* newest) {
  LockGuard guard(mutex_);
  return freed_.range(oldest, newest);
}

uint64_t ChunkCache::clean_bytes(Reclaim& reclaim) {
  LockGuard guard(mutex_);
  refresh_locked(reclaim);
  return idle_bytes() + freed_.clean_parked_bytes(reclaim);
}

uint64_t ChunkCache::largest_idle() {
  LockGuard guard(mutex_);
  return bins_.largest();
}

void ChunkCache::forget_all() {
  LockGuard guard(mutex_);
  bins_ = {};
  oldest_idle_ = youngest_idle_ = nullptr;
  freed_.clear();
  refused_ = {};
  refused_bytes_.set(0);
  live_.set(0);
  idle_bytes_.set(0);
  returnable_bytes_.set(0);
}

}  // namespace cistern::alloc
