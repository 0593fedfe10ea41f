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

void SlabPool::init(Ledger* ledger, Garbage* garbage, uint32_t owner, uint8_t number, bool gathers,
                    ReuseRule rule) {
  begin(ledger, garbage, {owner, Role::slab, number}, owner, gathers, rule, [] {});
}

uint64_t SlabPool::allocate(uint32_t bytes, Reclaim& reclaim, ChunkList* emptied, bool thorough) {
  const uint32_t granules = granules_for(bytes);
  LockGuard guard(mutex_);
  if (closed()) [[unlikely]]
    return 0;
  const Ticket clean = unpark_and_see_clean(reclaim);
  if (freed_.has_clean(clean)) {
    Block* block = take_if_alone(granules);
    if (block != nullptr) return become_live(block, bytes, reclaim.epoch());
    refresh_locked(clean, kRefreshedPerCall, emptied);
  }
  Block* block = find_clean(granules, bytes, thorough);
  if (block == nullptr && freed_.has_clean(clean)) {
    refresh_locked(clean, INT_MAX, emptied);
    block = find_clean(granules, bytes, thorough);
  }
  if (block == nullptr && thorough && forget_sizes(emptied)) {
    block = find_clean(granules, bytes, thorough);
  }
  return block == nullptr ? 0 : hand_out(block, granules, bytes, reclaim.epoch());
}

Block* SlabPool::find_clean(uint32_t granules, uint32_t bytes, bool thorough) {
  if (rule_ != ReuseRule::about) [[unlikely]]
    return find_by_rule(granules, bytes);
  return bins_.find(granules, kGranules, thorough ? INT_MAX : kProbes);
}

Block* SlabPool::find_by_rule(uint32_t granules, uint32_t bytes) {
  Block* block = keeps_sizes() ? find_kept(granules, bytes) : nullptr;
  return block != nullptr ? block : bins_.find_least(granules);
}

uint64_t SlabPool::hand_out(Block* block, uint32_t granules, uint32_t bytes, Epoch born) {
  remove(block);
  if (Block* rest = Slab::of(block)->split(block, granules)) insert(rest);
  return become_live(block, bytes, born);
}

uint64_t SlabPool::become_live(Block* block, uint32_t bytes, Epoch born) {
  Slab* slab = Slab::of(block);
  block->become(BlockState::live);
  block->requested = bytes & 0xffffff;
  block->stamp = born;
  if (slab->live++ == 0) {
    empty_slabs_.own_sub(1);
    spares_.remove(slab);
  }
  note_handed_out(bytes);
  return slab->address(block);
}

void SlabPool::add(Chunk* chunk, Slab* slab) {
  LockGuard guard(mutex_);
  insert(slab->open(chunk));
  empty_slabs_.own_add();
  chunk->set_slab(slab);
  chunk->move_to(here_);
}

uint64_t SlabPool::free(const Chunk* chunk, uint64_t address, Reclaim& reclaim, ChunkList* ended,
                        Ticket latest) {
  LockGuard guard(mutex_);
  Slab* slab = slab_of(chunk);
  Block* block = slab != nullptr && chunk->contains(address) ? slab->live_at(address) : nullptr;
  if (block == nullptr) return 0;
  if (--slab->live == 0) empty_slabs_.own_add();
  const uint64_t bytes = note_freed(block);
  if (chunk->exported.load(std::memory_order_relaxed)) [[unlikely]] {
    quarantine(bytes_of(block));
    end_if_over(slab, ended);
    return bytes;
  }
  ++slab->waiting;
  freed_.push(block, block->stamp, reclaim, latest);
  return bytes;
}

void SlabPool::end_if_over(Slab* slab, ChunkList* ended) {
  if (slab->live != 0 || slab->filling != 0) return;
  if (!slab->chunk->exported.load(std::memory_order_relaxed)) return;
  const uint64_t clean_before = clean_bytes();
  take_out(slab, ended);
  end_quarantine(kSlabBytes - (clean_before - clean_bytes()));
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

void SlabPool::make_clean(Block* block, ChunkList* emptied) {
  Slab* slab = Slab::of(block);
  if (keeps_sizes() && asked_of(block) != 0) [[unlikely]] {
    keep(block);
    if (slab->live == 0 && slab->waiting == 0 && slab->filling == 0) note_empty(slab, emptied);
    return;
  }
  block = merge(block);
  slab->set_clean(block);
  insert(block);
  if (block->granules == kGranules) note_empty(slab, emptied);
}

// Joins a block that is in no bin with its clean neighbours.
Block* SlabPool::merge(Block* block) {
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
  return block;
}

void SlabPool::note_empty(Slab* slab, ChunkList* emptied) {
  if (slab->chunk->exported.load(std::memory_order_relaxed)) return;  // end_if_over()
  // It was already noted while its blocks were kept for their sizes, which are now forgotten.
  if (spares_.has(slab)) return;
  if (spares_.count() < most_spares()) {
    spares_.add(slab);
  } else {
    take_out(slab, emptied);
  }
}

// Takes a slab with nothing live in it out of the pool.
void SlabPool::take_out(Slab* slab, ChunkList* emptied) {
  for (uint32_t granule = 0; granule < kGranules;) {
    Block* block = slab->starting_at(granule);
    granule += block->granules;
    remove_free(block);
  }
  spares_.remove(slab);
  slab->waiting = 0;
  empty_slabs_.own_sub(1);
  // Should the driver not take it back: whatever is parked may be in it.
  slab->chunk->born = parked_bytes() == 0 ? GraphLives::kEverything : 0;
  hand_over(slab->chunk, emptied);
}

// The spare slabs, and new ones that are not needed any more because another thread freed memory.
void SlabPool::take_out_empty(ChunkList* emptied) {
  while (Slab* spare = spares_.newest()) take_out(spare, emptied);
  while (const Block* whole = bins_.find(kGranules, kGranules, 1)) {
    take_out(Slab::of(whole), emptied);
  }
}

void SlabPool::collect_empty(Reclaim& reclaim, bool freed_too, ChunkList* emptied) {
  LockGuard guard(mutex_);
  if (closed()) return;
  refresh_locked(freed_.clean(reclaim), INT_MAX, emptied);
  take_out_empty(emptied);
  if (!freed_too) return;
  freed_.remove_if([&](Block* block, bool) {
    Slab* slab = Slab::of(block);
    if (slab->live != 0 || slab->filling != 0) return false;
    if (slab->waiting != 0) take_out(slab, emptied);  // at its first block; the rest just leave
    return true;
  });
}

void SlabPool::refresh(Reclaim& reclaim, bool spare_too, ChunkList* emptied) {
  LockGuard guard(mutex_);
  if (closed()) return;
  refresh_oldest(reclaim, INT_MAX, emptied);
  if (spare_too) take_out_empty(emptied);
}

Block* SlabPool::live_around(const Chunk* chunk, uint64_t address) const {
  Slab* slab = slab_of(chunk);
  return slab != nullptr && chunk->contains(address) ? slab->live_around(address) : nullptr;
}

uint64_t SlabPool::available_bytes(const Reclaim&, bool all, bool parts) {
  if (all) return empty_slabs_.get() * kSlabBytes;
  LockGuard guard(mutex_);
  return parts ? static_cast<uint64_t>(spares_.count()) * kSlabBytes : 0;
}

void SlabPool::forget_all() {
  LockGuard guard(mutex_);
  forget_blocks();
  spares_.clear();
  empty_slabs_.set(0);
}

}  // namespace cistern::alloc
