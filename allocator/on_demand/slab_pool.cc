// SPDX-License-Identifier: Apache-2.0
#include "allocator/on_demand/slab_pool.h"

#include <climits>

#include "allocator/reclaim/reclaim.h"

namespace cistern::alloc {
namespace {

// Frees made clean per allocation: keeps a long queue from stalling one call.
constexpr int kRefreshedPerCall = 32;
constexpr int kProbes = 8;

uint32_t granules_for(uint32_t bytes) { return (bytes + kGranuleBytes - 1) / kGranuleBytes; }

}  // namespace

void SlabPool::init(Ledger* ledger, Garbage* garbage, uint32_t owner, uint8_t number,
                    bool gathers) {
  freed_.join(garbage, &mutex_, owner);
  ledger_ = ledger;
  live_.init(ledger);
  gathers_ = gathers;
  some_unfilled_.store(false, std::memory_order_relaxed);
  LockGuard guard(mutex_);
  here_ = {owner, Role::slab, number};
  open_ = here_;
  allocations.set(0);
  frees.set(0);
}

// A chunk changes from and to Role::slab only under the lock of the pool it names.
Slab* SlabPool::slab_of(const Chunk* chunk) const {
  return chunk->at() == open_ ? chunk->slab() : nullptr;
}

uint64_t SlabPool::allocate(uint32_t bytes, const Reclaim& reclaim, ChunkList* emptied,
                            bool thorough) {
  const uint32_t granules = granules_for(bytes);
  LockGuard guard(mutex_);
  if (closed()) [[unlikely]]
    return 0;
  if (freed_.parked_may_leave(reclaim)) [[unlikely]]
    freed_.unpark(reclaim, /*all=*/false);
  const Ticket clean = reclaim.clean();
  if (freed_.has_clean(clean)) refresh_locked(clean, kRefreshedPerCall, emptied);
  Block* block = find_clean(granules, thorough);
  if (block == nullptr && freed_.has_clean(clean)) {
    refresh_locked(clean, INT_MAX, emptied);
    block = find_clean(granules, thorough);
  }
  return block == nullptr ? 0 : hand_out(block, granules, bytes, reclaim.epoch());
}

Block* SlabPool::find_clean(uint32_t granules, bool thorough) {
  return bins_.find(granules, kGranules, thorough ? INT_MAX : kProbes);
}

uint64_t SlabPool::hand_out(Block* block, uint32_t granules, uint32_t bytes, Epoch born) {
  Slab* slab = Slab::of(block);
  remove(block);
  if (Block* rest = slab->split(block, granules)) insert(rest);
  block->become(BlockState::live);
  block->requested = bytes & 0xffffff;
  block->stamp = born;
  if (slab == spare_) spare_ = nullptr;
  if (slab->live++ == 0) empty_slabs_.own_sub(1);
  allocations.own_add();
  live_.add(bytes);
  return slab->address(block);
}

void SlabPool::add(Chunk* chunk, Slab* slab) {
  LockGuard guard(mutex_);
  insert(slab->open(chunk));
  empty_slabs_.own_add();
  chunk->set_slab(slab);
  chunk->move_to(here_);
}

bool SlabPool::free(const Chunk* chunk, uint64_t address, const Reclaim& reclaim, ChunkList* ended,
                    Ticket latest) {
  LockGuard guard(mutex_);
  Slab* slab = slab_of(chunk);
  Block* block = slab != nullptr && chunk->contains(address) ? slab->live_at(address) : nullptr;
  if (block == nullptr) return false;
  if (--slab->live == 0) empty_slabs_.own_add();
  block->become(BlockState::waiting);
  frees.own_add();
  live_.add(0 - uint64_t{block->requested});
  if (chunk->exported.load(std::memory_order_relaxed)) [[unlikely]] {
    quarantine(bytes_of(block));
    if (slab->live == 0 && slab->filling == 0) end_exported(slab, ended);
    return true;
  }
  ++slab->waiting;
  freed_.push(block, block->stamp, reclaim, latest);
  return true;
}

// A block in quarantine is `waiting` in no queue: nothing makes it clean.
void SlabPool::quarantine(uint64_t bytes) {
  quarantined_bytes_.own_add(bytes);
  ledger_->quarantined.add(bytes);
  ledger_->quarantined_peak.raise_to(ledger_->quarantined.get());
}

void SlabPool::end_exported(Slab* slab, ChunkList* ended) {
  const uint64_t clean_before = clean_bytes_.get();
  take_out(slab, ended);
  const uint64_t quarantined = kSlabBytes - (clean_before - clean_bytes_.get());
  quarantined_bytes_.own_sub(quarantined);
  ledger_->quarantined.sub(quarantined);
}

bool SlabPool::mark_exported(Chunk* chunk, uint64_t address) {
  LockGuard guard(mutex_);
  Slab* slab = slab_of(chunk);
  if (slab == nullptr || !chunk->contains(address) || slab->live == 0) return false;
  chunk->exported.store(true, std::memory_order_relaxed);
  freed_.remove_if([&](Block* block, bool) {
    if (Slab::of(block) != slab) return false;
    --slab->waiting;
    quarantine(bytes_of(block));
    return true;
  });
  return true;
}

// Where fills are gathered, what was freed becomes clean by put_back() alone.
void SlabPool::refresh_locked(Ticket clean, int most, ChunkList* emptied) {
  if (gathers_) [[unlikely]]
    return;
  for (; most > 0 && freed_.has_clean(clean); --most) {
    Block* block = freed_.pop();
    --Slab::of(block)->waiting;
    make_clean(block, emptied);
  }
}

Block* SlabPool::take_unfilled(const Reclaim& reclaim) {
  LockGuard guard(mutex_);
  if (closed()) return nullptr;
  const Ticket clean = reclaim.clean();
  Block* taken = nullptr;
  while (freed_.has_clean(clean)) {
    Block* block = freed_.pop();
    --Slab::of(block)->waiting;
    ++Slab::of(block)->filling;
    block->next = taken;
    taken = block;
  }
  if (taken != nullptr) in_hand_.fetch_add(1, std::memory_order_relaxed);
  return taken;
}

void SlabPool::put_back(Block* blocks, ChunkList* emptied, ChunkList* ended) {
  LockGuard guard(mutex_);
  while (blocks != nullptr) {
    Block* block = blocks;
    blocks = block->next;
    Slab* slab = Slab::of(block);
    --slab->filling;
    make_clean(block, emptied);
    const bool exported = slab->chunk->exported.load(std::memory_order_relaxed);
    if (exported && slab->live == 0 && slab->filling == 0) end_exported(slab, ended);
  }
  put_down();
}

void SlabPool::unpark_everything(const Reclaim& reclaim) {
  LockGuard guard(mutex_);
  freed_.unpark(reclaim, /*all=*/true);
}

void SlabPool::make_clean(Block* block, ChunkList* emptied) {
  Slab* slab = Slab::of(block);
  if (Block* after = slab->clean_after(block)) {
    remove(after);
    slab->join(block, after);
  }
  if (Block* before = slab->clean_before(block)) {
    remove(before);
    slab->join(before, block);
    block = before;
  }
  slab->set_clean(block);
  insert(block);
  if (block->granules != kGranules) return;
  if (spare_ == nullptr) {
    spare_ = slab;
  } else {
    take_out(slab, emptied);
  }
}

void SlabPool::insert(Block* block) {
  bins_.insert(block);
  clean_bytes_.own_add(bytes_of(block));
}

void SlabPool::remove(Block* block) {
  bins_.remove(block);
  clean_bytes_.own_sub(bytes_of(block));
}

// Takes a slab with nothing live in it out of the pool.
void SlabPool::take_out(Slab* slab, ChunkList* emptied) {
  for (uint32_t granule = 0; granule < kGranules;) {
    Block* block = slab->starting_at(granule);
    granule += block->granules;
    if (block->is() == BlockState::clean) remove(block);
  }
  if (slab == spare_) spare_ = nullptr;
  slab->waiting = 0;
  empty_slabs_.own_sub(1);
  // Should the driver not take it back: whatever is parked may be in it.
  slab->chunk->born = parked_bytes() == 0 ? Reclaim::kEverything : 0;
  slab->chunk->become(Role::released);
  in_hand_.fetch_add(1, std::memory_order_relaxed);
  emptied->push(slab->chunk);
}

// The spare one, and fresh ones that another thread's free made superfluous.
void SlabPool::take_out_empty(ChunkList* emptied) {
  while (const Block* whole = bins_.find(kGranules, kGranules, 1)) {
    take_out(Slab::of(whole), emptied);
  }
}

void SlabPool::collect_empty(const Reclaim& reclaim, bool freed_too, ChunkList* emptied) {
  LockGuard guard(mutex_);
  if (closed()) return;
  refresh_locked(reclaim.clean(), INT_MAX, emptied);
  take_out_empty(emptied);
  if (!freed_too) return;
  freed_.remove_if([&](Block* block, bool) {
    Slab* slab = Slab::of(block);
    if (slab->live != 0 || slab->filling != 0) return false;
    if (slab->waiting != 0) take_out(slab, emptied);  // at its first block; the rest just leave
    return true;
  });
}

void SlabPool::refresh(const Reclaim& reclaim, bool spare_too, ChunkList* emptied) {
  LockGuard guard(mutex_);
  if (closed()) return;
  if (freed_.parked_may_leave(reclaim)) freed_.unpark(reclaim, /*all=*/false);
  refresh_locked(reclaim.clean(), INT_MAX, emptied);
  if (spare_too) take_out_empty(emptied);
}

bool SlabPool::find(const Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes) {
  LockGuard guard(mutex_);
  Slab* slab = slab_of(chunk);
  const Block* block =
      slab != nullptr && chunk->contains(address) ? slab->live_around(address) : nullptr;
  if (block == nullptr) return false;
  *start = slab->address(block);
  *bytes = block->requested;
  return true;
}

bool SlabPool::waiting_range(Ticket* oldest, Ticket* newest) {
  LockGuard guard(mutex_);
  return freed_.range(oldest, newest);
}

uint64_t SlabPool::largest_clean() {
  LockGuard guard(mutex_);
  return bins_.largest() * kGranuleBytes;
}

void SlabPool::close() {
  LockGuard guard(mutex_);
  open_ = Place::nowhere();
}

void SlabPool::forget_all() {
  LockGuard guard(mutex_);
  bins_ = {};
  freed_.clear();
  spare_ = nullptr;
  clean_bytes_.set(0);
  empty_slabs_.set(0);
  ledger_->quarantined.sub(quarantined_bytes_.get());
  quarantined_bytes_.set(0);
  live_.forget_all();
}

}  // namespace cistern::alloc
