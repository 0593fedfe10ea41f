// SPDX-License-Identifier: Apache-2.0
// Small blocks (below 1 MiB) of one context, for the threads that share one shard of it: cut from
// slabs of 2 MiB. Blocks go from live to freed (waiting, or parked) to clean (merged with clean
// neighbours, in bins by size). Any thread: every function takes the pool's own lock. None calls
// the driver; slabs that became empty are handed to the caller as chunks.
#pragma once

#include <algorithm>

#include "allocator/chunk/chunk.h"
#include "allocator/chunk/pool_base.h"
#include "allocator/on_demand/slab.h"

namespace cistern::alloc {

// Slabs in which nothing is live nor waits, that a pool keeps.
template <int kMost>
class SpareSlabs {
 public:
  int count() const { return count_; }
  Slab* newest() const { return count_ == 0 ? nullptr : slabs_[count_ - 1]; }
  bool has(const Slab* slab) const {
    return std::find(slabs_, slabs_ + count_, slab) != slabs_ + count_;
  }
  void add(Slab* slab) { slabs_[count_++] = slab; }
  void remove(const Slab* slab) {
    for (int i = 0; i < count_; ++i) {
      if (slabs_[i] == slab) slabs_[i--] = slabs_[--count_];
    }
  }
  void clear() { count_ = 0; }

 private:
  Slab* slabs_[kMost];
  int count_ = 0;
};

// On cache lines of its own (fetched in pairs), or threads in different shards would fight over
// their neighbours' ends.
class alignas(128) SlabPool : public PoolBase<SlabPool, Block, 9> {  // 1 … 4096 granules
 public:
  // The address of a clean block of `bytes`, or 0. `thorough`: look at every free block rather than
  // at a few of the right size; for the last attempt before memory is said to be out.
  uint64_t allocate(uint32_t bytes, Reclaim& reclaim, ChunkList* emptied, bool thorough = false);

  // PoolBase::begin(). `number`: of the shard.
  void init(Ledger* ledger, Garbage* garbage, uint32_t owner, uint8_t number, bool gathers = false,
            ReuseRule rule = ReuseRule::about);

  // Takes a chunk of kSlabBytes; `slab` is its fresh bookkeeping.
  void add(Chunk* chunk, Slab* slab);

  // What the program had asked for; 0 when `address` is not the start of a live block of a slab of
  // this pool. `chunk` is what the index said; it may have another meaning by now.
  // When the last live block of an exported slab goes, so does its chunk, through `ended`: for the
  // driver, never for reuse. `latest`: FreedQueue::push().
  uint64_t free(const Chunk* chunk, uint64_t address, Reclaim& reclaim, ChunkList* ended,
                Ticket latest = Reclaim::kNow);

  // Another process or device may know what is at `address`, and nobody says when it is done with
  // it: from now on what is freed in this slab is in quarantine until the slab ends. Parts never
  // handed out yet still serve, so that a slab does not end up with one block. False when there is
  // no live block in the slab.
  bool mark_exported(Chunk* chunk, uint64_t address);

  // Hands out every slab in which nothing is live. With `freed_too` also those whose last blocks
  // may still be in use: good for returning them to the driver, not for reuse.
  void collect_empty(Reclaim& reclaim, bool freed_too, ChunkList* emptied);

  // What became clean since is merged with its neighbours now. Empty slabs go to the caller, with
  // `spare_too` all of them.
  void refresh(Reclaim& reclaim, bool spare_too, ChunkList* emptied);

  // Once it is close()d and nothing is in_hand(). Counters stay.
  void forget_all();

  // What could serve requests of any kind: slabs in which the program holds nothing.
  uint64_t available_bytes(const Reclaim& reclaim, bool all, bool parts);

 private:
  friend PoolBase;

  Slab* slab_of(const Chunk* chunk) const { return has(chunk) ? chunk->slab() : nullptr; }
  Block* live_around(const Chunk* chunk, uint64_t address) const;
  void make_clean(Block* block, ChunkList* emptied);
  Block* find_clean(uint32_t granules, uint32_t bytes, bool thorough);
  [[gnu::cold]] Block* find_by_rule(uint32_t granules, uint32_t bytes);
  Block* merge(Block* block);
  void set_clean(Block* block) { Slab::of(block)->set_clean(block); }
  void note_empty(Slab* slab, ChunkList* emptied);
  uint64_t hand_out(Block* block, uint32_t granules, uint32_t bytes, Epoch born);
  uint64_t become_live(Block* block, uint32_t bytes, Epoch born);
  void take_out(Slab* slab, ChunkList* emptied);
  void take_out_empty(ChunkList* emptied);
  void end_if_over(Slab* slab, ChunkList* ended);

  // One empty slab stays, so that a lone block going back and forth is cheap. Where blocks have
  // sizes, more: another slab would be empty of them.
  static constexpr int kSparesOfSizes = 16;
  int most_spares() const { return keeps_sizes() ? kSparesOfSizes : 1; }

  SpareSlabs<kSparesOfSizes> spares_;
  Counter empty_slabs_;
};

}  // namespace cistern::alloc
