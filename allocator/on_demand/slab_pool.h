// SPDX-License-Identifier: Apache-2.0
// Small blocks (below 1 MiB) of one context, for the threads that share one shard of it: cut from
// slabs of 2 MiB. Blocks go from live to freed (waiting, or parked) to clean (merged with clean
// neighbours, in bins by size). Any thread: every function takes the pool's own lock. None calls
// the driver; slabs that became empty are handed to the caller as chunks.
#pragma once

#include "allocator/base/live_count.h"
#include "allocator/base/mutex.h"
#include "allocator/base/size_bins.h"
#include "allocator/chunk/chunk_list.h"
#include "allocator/on_demand/slab.h"
#include "allocator/reclaim/freed_queue.h"

namespace cistern::alloc {

struct BlockBinTraits {
  static uint64_t size(const Block* b) { return b->granules; }
  static Block*& next(Block* b) { return b->next; }
  static Block* prev(Block* b) { return b->prev; }
  static void set_prev(Block* b, Block* p) { b->prev = p; }
};

struct BlockLinks : NextLink<Block> {
  static uint64_t stamp(const Block* b) { return b->stamp; }
  static void set_stamp(Block* b, uint64_t stamp) { b->stamp = stamp; }
  static uint64_t bytes(const Block* b) { return uint64_t{b->granules} * kGranuleBytes; }
};

// On cache lines of its own (fetched in pairs), or threads in different shards would fight over
// their neighbours' ends.
class alignas(128) SlabPool {
 public:
  // The address of a clean block of `bytes`, or 0. `thorough`: look at every free block rather than
  // at a few of the right size; for the last attempt before memory is said to be out.
  uint64_t allocate(uint32_t bytes, const Reclaim& reclaim, ChunkList* emptied,
                    bool thorough = false);

  // Also of a pool used before (dropped, that is): counters start anew. `owner` and `number` are
  // what the chunks of this pool say of themselves. `garbage`: nullptr for none. `gathers`: what is
  // clean here is filled, as allocator/chunk/gather.h says.
  void init(Ledger* ledger, Garbage* garbage, uint32_t owner, uint8_t number, bool gathers = false);

  // Takes a chunk of kSlabBytes; `slab` is its fresh bookkeeping.
  void add(Chunk* chunk, Slab* slab);

  // False when `address` is not the start of a live block of a slab of this pool. `chunk` is what
  // the index said; it may have another meaning by now.
  // When the last live block of an exported slab goes, so does its chunk, through `ended`: for the
  // driver, never for reuse. `latest`: FreedQueue::push().
  bool free(const Chunk* chunk, uint64_t address, const Reclaim& reclaim, ChunkList* ended,
            Ticket latest = Reclaim::kNow);

  // For gather(): takes out what was freed, no earlier work can use any more, and must be filled
  // before it is clean. nullptr when there is nothing.
  Block* take_unfilled(const Reclaim& reclaim);
  // It comes back as clean. Slabs that are empty then go to `emptied`, exported ones to `ended`.
  void put_back(Block* blocks, ChunkList* emptied, ChunkList* ended);
  // Something that came in, or comes back, may not be filled.
  void note_unfilled() { some_unfilled_.store(true, std::memory_order_relaxed); }
  // Whether a block that was handed out before this call is filled for sure.
  bool fills() const { return gathers_ && !some_unfilled_.load(std::memory_order_relaxed); }

  // Start and requested size of the live block around `address`; false if there is none.
  bool find(const Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes);

  // Another process or device may know what is at `address`, and nobody says when it is done with
  // it: from now on what is freed in this slab is in quarantine until the slab ends. Parts never
  // handed out yet still serve, so that a slab does not end up with one block. False when there is
  // no live block in the slab.
  bool mark_exported(Chunk* chunk, uint64_t address);

  // Hands out every slab in which nothing is live. With `freed_too` also those whose last blocks
  // may still be in use: good for returning them to the driver, not for reuse.
  void collect_empty(const Reclaim& reclaim, bool freed_too, ChunkList* emptied);

  // What became clean since is merged with its neighbours now. Empty slabs go to the caller, with
  // `spare_too` all of them.
  void refresh(const Reclaim& reclaim, bool spare_too, ChunkList* emptied);

  // Memory is out: what is parked only waits from now on, as it would with the driver alone.
  void unpark_everything(const Reclaim& reclaim);

  // The context is gone, in two steps: close() keeps everything where it is, and once nothing is
  // in_hand() forget_all() forgets it. Counters stay.
  void close();
  void forget_all();

  // How many slabs were taken out and not put_down() by their new owner yet, and threads that fill
  // what they took out.
  int in_hand() const { return in_hand_.load(std::memory_order_acquire); }
  void put_down() { in_hand_.fetch_sub(1, std::memory_order_release); }
  void reset_after_fork() { mutex_.reset(); }

  uint64_t waiting_bytes() const { return freed_.waiting_bytes(); }
  uint64_t parked_bytes() const { return freed_.parked_bytes(); }
  uint64_t garbage_bytes() const { return freed_.garbage_bytes(); }
  uint64_t clean_bytes() const { return clean_bytes_.get(); }
  uint64_t quarantined_bytes() const { return quarantined_bytes_.get(); }
  // What could serve requests of any kind: slabs in which the program holds nothing.
  uint64_t available_bytes() const { return empty_slabs_.get() * kSlabBytes; }
  uint64_t largest_clean();
  // The oldest and newest waiting free; false if none waits.
  bool waiting_range(Ticket* oldest, Ticket* newest);

  Counter allocations, frees;  // written under the lock only

  // Requested bytes that are live, and how much of them the Ledger does not know yet.
  uint64_t live() const { return live_.get(); }
  uint64_t unpublished() const { return live_.unpublished(); }

 private:
  bool closed() const { return open_ == Place::nowhere(); }
  Slab* slab_of(const Chunk* chunk) const;
  void refresh_locked(Ticket clean, int most, ChunkList* emptied);
  void make_clean(Block* block, ChunkList* emptied);
  Block* find_clean(uint32_t granules, bool thorough);
  uint64_t hand_out(Block* block, uint32_t granules, uint32_t bytes, Epoch born);
  void insert(Block* block);
  void remove(Block* block);
  void take_out(Slab* slab, ChunkList* emptied);
  void take_out_empty(ChunkList* emptied);
  void quarantine(uint64_t bytes);
  void end_exported(Slab* slab, ChunkList* ended);

  Mutex mutex_;
  Place here_;                               // of its chunks
  Place open_;                               // the same; nowhere() once it is closed
  SizeBins<Block, BlockBinTraits, 9> bins_;  // 1 … 4096 granules
  FreedQueue<Block, BlockLinks> freed_;
  Slab* spare_ =
      nullptr;  // one empty slab stays, so that a lone block going back and forth is cheap
  Counter clean_bytes_, empty_slabs_, quarantined_bytes_;
  LiveCount live_;
  Ledger* ledger_;
  bool gathers_ = false;
  std::atomic<bool> some_unfilled_{false};
  std::atomic<int> in_hand_{0};
};

}  // namespace cistern::alloc
