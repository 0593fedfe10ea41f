// SPDX-License-Identifier: Apache-2.0
// Blocks inside large chunks: the one structure under all chunk strategies. A block goes from live
// to waiting (a queue in the order of the frees) to clean (in bins by size, merged with its clean
// neighbours at once or, where the strategy says so, when a request misses). Any thread: every
// function takes the pool's own lock. None calls the driver; chunks in which nothing is live are
// handed to the caller. block_pool.cc has the way of a block, block_pool_chunks.cc that of a chunk.
#pragma once

#include "allocator/base/live_count.h"
#include "allocator/base/mutex.h"
#include "allocator/base/size_bins.h"
#include "allocator/chunk/chunk_list.h"
#include "allocator/chunk_pools/block_records.h"
#include "allocator/chunk_pools/block_table.h"
#include "allocator/reclaim/freed_queue.h"
#include "allocator/reclaim/idle_release.h"

namespace cistern::alloc {

struct ChunkBlockBinTraits {
  static uint64_t size(const ChunkBlock* b) { return b->granules; }
  static ChunkBlock*& next(ChunkBlock* b) { return b->next; }
  static ChunkBlock* prev(ChunkBlock* b) { return b->prev; }
  static void set_prev(ChunkBlock* b, ChunkBlock* p) { b->prev = p; }
};

struct ChunkBlockLinks : NextLink<ChunkBlock> {
  static uint64_t stamp(const ChunkBlock* b) { return b->stamp; }
  static void set_stamp(ChunkBlock* b, uint64_t stamp) { b->stamp = stamp; }
  static uint64_t bytes(const ChunkBlock* b) { return b->bytes(); }
};

class alignas(128) BlockPool {
 public:
  // Also of a pool used before (dropped, that is): counters start anew. `owner` and `number` are
  // what the chunks of this pool say of themselves. `garbage`: nullptr for none. `gathers`: what is
  // clean here is filled, as allocator/chunk/gather.h says.
  void init(BlockPages* pages, Ledger* ledger, Garbage* garbage, uint32_t owner, uint8_t number,
            bool merge_at_once, uint64_t align, bool gathers);

  // How hard to look for a block. `first`: gives up with ask_first rather than cut up a larger
  // block while enough for the request may be clean by now, or walk on through a large chunk (and
  // its bookkeeping) while much is waiting. `thorough`: every free block, not a few of the right
  // size.
  enum class Search : uint8_t { first, normal, thorough };

  // The address of a clean block of `bytes`, or 0.
  uint64_t allocate(uint64_t bytes, const Reclaim& reclaim, Search search,
                    bool* ask_first = nullptr);

  // Takes a chunk with its fresh map (ChunkMap::own is the caller's), and at once a block of
  // `bytes` from it, so that no other thread gets its space before: the address, 0 where no aligned
  // block fits. False, and nothing taken, when there is no memory for bookkeeping.
  bool add(Chunk* chunk, ChunkMap* map, uint64_t bytes, Epoch born, uint64_t* address);

  // False when `address` is not the start of a live block of this pool. `chunk` is what the index
  // said; it may have another meaning by now. When the last live block of a chunk with blocks in
  // quarantine goes, so does the chunk, through `ended`: for the driver, never for reuse.
  // `latest`: FreedQueue::push().
  bool free(const Chunk* chunk, uint64_t address, const Reclaim& reclaim, ChunkList* ended,
            Ticket latest = Reclaim::kNow);

  // For gather(): takes out what was freed, no earlier work can use any more, and must be filled
  // before it is clean. nullptr when there is nothing.
  ChunkBlock* take_unfilled(const Reclaim& reclaim);
  // It comes back as clean. `emptied` stays as it is; `ended`: as in free().
  void put_back(ChunkBlock* blocks, ChunkList* emptied, ChunkList* ended);
  // Something that came in, or comes back, may not be filled.
  void note_unfilled() { some_unfilled_.store(true, std::memory_order_relaxed); }
  // Whether a block that was handed out before this call is filled for sure.
  bool fills() const { return gathers_ && !some_unfilled_.load(std::memory_order_relaxed); }

  // Start and requested size of the live block around `address`; false if there is none.
  bool find(const Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes);

  // Another process or device may know the live block around `address`, and nobody says when it is
  // done with it: once freed it is in quarantine until its chunk goes back to the driver. False
  // when there is none. Only this block, since a chunk may be most of the device.
  bool mark_exported(const Chunk* chunk, uint64_t address);

  // Takes out every chunk in which nothing is live. With `freed_too` also those whose last blocks
  // may still be in use: good for returning them to the driver, not for reuse. The maps stay
  // attached (Chunk::map), for the caller to close.
  void collect_idle(const Reclaim& reclaim, bool freed_too, ChunkList* out);

  // What became clean since is merged, as the strategy does it, now.
  void refresh(const Reclaim& reclaim);

  // For a sweep at `now`: the chunks in which nothing is live nor waits, each with its age from
  // here on.
  IdleChunks see_idle(Tick now);
  // Takes out one of them that is that old, if there is any.
  void collect_aged(Tick now, uint32_t least, ChunkList* out);

  // What is parked waits from now on: memory is out.
  void unpark_everything(const Reclaim& reclaim);

  // The context is gone, in two steps: close() keeps everything where it is, and once nothing is
  // in_hand() forget_all() forgets it. Counters stay.
  void close();
  void forget_all();
  void reset_after_fork() { mutex_.reset(); }

  // How many chunks were taken out and not put_down() by their new owner yet, and threads that fill
  // what they took out.
  int in_hand() const { return in_hand_.load(std::memory_order_acquire); }
  void put_down() { in_hand_.fetch_sub(1, std::memory_order_release); }

  // No chunk but such as were made for one request (ChunkMap::own).
  bool no_chunk_yet() const { return chunks_.get() == 0; }
  uint64_t waiting_bytes() const { return freed_.waiting_bytes(); }
  uint64_t parked_bytes() const { return freed_.parked_bytes(); }
  uint64_t garbage_bytes() const { return freed_.garbage_bytes(); }
  uint64_t clean_bytes() const { return clean_bytes_.get(); }
  uint64_t quarantined_bytes() const { return quarantined_bytes_.get(); }
  // What requests can still be served from: here or, of chunks in which nothing is live, by the
  // driver, which gets what it rounded up to its pages back with them.
  uint64_t available_bytes();
  uint64_t largest_clean();
  // The oldest and newest waiting free; false if none waits.
  bool waiting_range(Ticket* oldest, Ticket* newest);
  uint64_t live() const { return live_.get(); }
  uint64_t unpublished() const { return live_.unpublished(); }

  Counter allocations, frees;        // written under the lock only
  std::atomic<bool> growing{false};  // a thread is taking a chunk for this pool

 private:
  bool closed() const { return open_ == Place::nowhere(); }
  ChunkMap* map_of(const Chunk* chunk) const;
  ChunkBlock* live_around(const Chunk* chunk, uint64_t address) const;
  void quarantine(ChunkBlock* block);
  void end_exported(ChunkMap* map, ChunkList* ended);
  void remove_freed(const ChunkMap* only);
  void refresh_locked(Ticket clean, int most);
  void make_clean(ChunkBlock* block);
  ChunkBlock* merge(ChunkBlock* block);
  void merge_everything();
  ChunkBlock* join(ChunkBlock* first, ChunkBlock* second);
  ChunkBlock* find_clean(uint32_t granules, uint32_t align, Search search) const;
  ChunkBlock* find_aligned(uint32_t granules, uint32_t align) const;
  uint64_t take(uint32_t granules, uint64_t bytes, Epoch born, Search search);
  bool worth_asking(uint32_t granules) const;
  uint64_t hand_out(ChunkBlock* block, uint32_t granules, uint32_t align, uint64_t bytes,
                    Epoch born);
  ChunkBlock* split(ChunkBlock* block, uint32_t granules);
  void insert(ChunkBlock* block);
  void remove(ChunkBlock* block);
  void take_out(ChunkMap* map, ChunkList* out);

  Mutex mutex_;
  Place here_;      // of its chunks
  Place open_;      // the same; nowhere() once it is closed
  uint32_t align_;  // in granules
  bool merge_at_once_;
  bool gathers_ = false;
  std::atomic<bool> some_unfilled_{false};
  bool unmerged_ = false;  // something became clean since everything was merged
  uint32_t unasked_ = 0;   // blocks freed since ask_first was the answer
  FreedQueue<ChunkBlock, ChunkBlockLinks> freed_;
  ChunkMap* maps_ = nullptr;
  LiveCount live_;
  std::atomic<int> in_hand_{0};
  Counter clean_bytes_, quarantined_bytes_, chunks_;
  Counter filling_bytes_;  // taken out by take_unfilled() and not back yet
  Counter idle_rounding_;  // of chunks in which nothing is live, up to whole driver pages
  Ledger* ledger_;

  BlockRecords records_;
  SizeBins<ChunkBlock, ChunkBlockBinTraits, 29> bins_;  // to 2^32 granules
  BlockTable table_;
};

}  // namespace cistern::alloc
