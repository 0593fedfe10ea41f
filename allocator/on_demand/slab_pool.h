// SPDX-License-Identifier: Apache-2.0
// The small blocks (below 1 MiB) of one shard of a context, cut from slabs of 2 MiB. Several
// threads may share a shard. Blocks go from live to freed (waiting, or parked) to clean (merged
// with clean neighbours, in bins by size). Any thread: every function takes the pool's own lock.
// None calls the driver; slabs that become empty are handed to the caller as chunks.
#pragma once

#include <algorithm>

#include "allocator/chunk/chunk.h"
#include "allocator/chunk/pool_base.h"
#include "allocator/on_demand/slab.h"

namespace cistern::alloc {

// The empty slabs that a pool keeps: nothing in them is live or waits.
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

// Aligned to 128 bytes, because cache lines are fetched in pairs: otherwise threads of different
// shards would share lines.
class alignas(128) SlabPool : public PoolBase<SlabPool, Block, 9> {  // 1 … 4096 granules
 public:
  // The address of a clean block of `bytes`, or 0. `thorough`: looks at every free block, not only
  // at a few of the right size; for the last attempt before a request fails. `emptied`: see
  // refresh().
  uint64_t allocate(uint32_t bytes, Reclaim& reclaim, ChunkList* emptied, bool thorough = false);

  // PoolBase::begin(). `number`: that of the shard.
  void init(Ledger* ledger, Garbage* garbage, uint32_t owner, uint8_t number, bool gathers = false,
            ReuseRule rule = ReuseRule::about);

  // Adds a chunk of kSlabBytes as a slab. `slab`: a new record for it.
  void add(Chunk* chunk, Slab* slab);

  // Returns the requested size; 0 if `address` is not the start of a live block of this pool.
  // `chunk` is what the index returned; its record may have been recycled since.
  // If this was the last live block of an exported slab, the chunk leaves through `ended`, for the
  // driver and never for reuse. `latest`: see FreedQueue::push().
  uint64_t free(const Chunk* chunk, uint64_t address, Reclaim& reclaim, ChunkList* ended,
                Ticket latest = Reclaim::kNow);

  // Another process or device may know the memory at `address`, and does not say when it is done.
  // So every block that waits or is freed from now on in this slab is in quarantine until the slab
  // ends. Clean memory of the slab still serves requests, so the slab does not end up with one
  // block. False if the slab has no live block.
  bool mark_exported(Chunk* chunk, uint64_t address);

  // Moves every slab in which nothing is live and nothing waits into `emptied`. With `freed_too`
  // also those whose freed blocks may still be in use: such slabs may go to the driver, but must
  // not be reused.
  void collect_empty(Reclaim& reclaim, bool freed_too, ChunkList* emptied);

  // Makes freed blocks clean that no work can touch any more, and merges them with their
  // neighbours. Moves empty slabs that the pool does not keep into `emptied`; with `spare_too` all
  // empty slabs.
  void refresh(Reclaim& reclaim, bool spare_too, ChunkList* emptied);

  // Call it after close(), once in_hand() is 0. The counts of allocations and frees stay.
  void forget_all();

  // Bytes of slabs in which the program holds nothing: they could serve any request.
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

  // The pool keeps one empty slab, so that allocating and freeing a single block again and again is
  // cheap. Under ReuseRule::same_size it keeps more, because another slab would have no blocks of
  // the right size.
  static constexpr int kSparesOfSizes = 16;
  int most_spares() const { return keeps_sizes() ? kSparesOfSizes : 1; }

  SpareSlabs<kSparesOfSizes> spares_;
  Counter empty_slabs_;
};

}  // namespace cistern::alloc
