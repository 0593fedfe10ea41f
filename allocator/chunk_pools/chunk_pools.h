// SPDX-License-Identifier: Apache-2.0
// The chunk strategies (legacy, naive_best_fit, auto_growth, thread_local): few large chunks, with
// every request a block inside one. They differ in the sizes of their chunks (chunk_sizes.h), in
// when neighbours are merged, and in how many pools there are: one, or one for each thread number
// (thread_numbers.h). A free goes to the block's pool, whichever thread frees.
//
// Any thread; no lock is held while the chunk layer is called.
#pragma once

#include "allocator/base/ledger.h"
#include "allocator/chunk/chunk_supply.h"
#include "allocator/chunk/request.h"
#include "allocator/chunk_pools/block_pool.h"
#include "allocator/chunk_pools/chunk_sizes.h"
#include "allocator/chunk_pools/thread_numbers.h"

namespace cistern::alloc {

// The bookkeeping of the chunk strategies' pools, of all contexts. Any thread; not on hot paths.
struct BlockArenas {
  Arena<BlockPool> pools;
  Arena<ChunkMap> maps;
  BlockPages pages;

  void reset_after_fork() {
    pools.reset_after_fork();
    maps.reset_after_fork();
    pages.reset_after_fork();
  }
};

// Of a strategy whose idle memory serves requests of any size: it is kept until memory runs short.
struct KeepsIdleMemory {
  static constexpr bool kCutsIdleChunks = true;
  static constexpr bool kHasIdleBudget = false;
  bool over_floor() const { return false; }
  bool over_budget(uint64_t /*coming*/ = 0) const { return false; }
  bool far_over_budget() const { return false; }
  bool must_give_back() const { return false; }
  void collect_excess(ChunkList*, uint64_t /*coming*/ = 0) {}
  void collect_aged_excess(Tick, uint32_t, uint64_t, ChunkList*) {}
};

class ChunkPools : public KeepsIdleMemory {
 public:
  // The most that its pools together may have live and not published: a block of any size.
  static constexpr uint64_t kMostUnpublished = uint64_t{1} << 62;

  // `role`: of its chunks, split or planned.
  void init(SharedChunks* shared, BlockArenas* arenas, ChunkSupply* supply,
            const DeviceParts& device, uint32_t owner, const ChunkSizes& sizes,
            Role role = Role::split);

  // Serves the request from clean memory of the thread's pool.
  bool take_clean(Request& request);
  // The same, with Request::room behind it.
  bool take_clean_with_room(Request& request);
  // The same as take_clean(), where something of its size is clean and freed memory keeps its size
  // (ReuseRule).
  bool take_same(Request& request);

  // Serves it from a fresh chunk of the usual size, or where the request is larger from one as
  // large as that; a result code of the source.
  int take_fresh(Request& request);

  // The same from whatever the driver still has: chunks half as large again and again, while
  // they have driver pages of their own, then just the request. A small one is the driver's then,
  // not the pool's.
  int take_fresh_of_any_size(Request& request, Step* step);
  bool can_ask_for_less() const { return true; }

  // For a plan (allocator/plan_arena.h), in the first pool. Takes a chunk of `bytes`, which becomes
  // the newest one; and serves a request at `offset` of the newest one, if that memory is clean.
  bool add_chunk(uint64_t bytes);
  uint64_t take_at(BlockPool& pool, uint64_t offset, uint64_t bytes) {
    return pool.allocate_at(offset, bytes, shared_->reclaim);
  }

  // The last attempt: every pool, every free block; worth repeating once more memory is clean.
  bool take_from_anywhere(Request& request, Step* step);
  bool worth_waiting(const Request& request) const { return true; }

  uint64_t most_pools() const { return pools_used_.load(std::memory_order_relaxed); }

  // For chunks of its role.
  bool find(const Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes);
  // The block there became known outside the process (block_pool.h).
  bool mark_exported(const Chunk* chunk, uint64_t address);

  // The pool of a chunk, and what to do with chunks that ended with a block of theirs, or with a
  // group (groups.h).
  BlockPool* pool_of(const Chunk* chunk) {
    return pools_[chunk->at().shard()].load(std::memory_order_acquire);
  }
  void release_exported(ChunkList* ended);

  // The pool that lies beside the default strategy, for members of groups, if that is in use.
  static constexpr unsigned kBesideOnDemand = 0;

  // For a strategy that gives pools meanings (graph_arena): a pool by its number, nullptr where
  // there is none yet; takes out its clean chunks; takes out one that is wholly idle, if there is
  // any.
  BlockPool* pool_at(unsigned number) const {
    return pools_[number].load(std::memory_order_acquire);
  }
  void collect_clean_of(unsigned number, ChunkList* out);
  void collect_one_idle(unsigned number, ChunkList* out);
  // The same of the first pool, but for its newest chunk.
  void collect_idle_before_newest(ChunkList* out);

  // Where fills are gathered: fills what no work uses any more, ahead of need; of one pool, or all.
  void fill_freed_of(unsigned number);
  void fill_freed() {
    for_each_pool([this](BlockPool& pool) { fill_freed(pool); });
  }

  // Whether the block just handed out from this chunk is filled.
  bool fills(const Chunk* chunk) {
    const BlockPool* pool = pool_of(chunk);
    return pool != nullptr && pool->fills();
  }

  // Takes every chunk in which nothing is live out of the pools, for the driver.
  void collect_all(ChunkList* out) { collect_idle(true, out); }

  // The same of those in which nothing is waiting either.
  void collect_clean(ChunkList* out) { collect_idle(false, out); }

  // What became clean since is merged now.
  void refresh(bool) {
    for_each_pool([this](BlockPool& pool) { pool.refresh(shared_->reclaim); });
  }

  // Idle release: what is wholly idle, and the oldest of it if it is that old.
  IdleChunks see_idle(Tick now);
  void collect_aged(Tick now, uint32_t least, ChunkList* out, uint64_t most = UINT64_MAX);
  // The same without the chunk layer's.
  IdleChunks see_idle_here(Tick now);
  void collect_aged_here(Tick now, uint32_t least, ChunkList* out, uint64_t most = UINT64_MAX);

  void refresh_chunks() { supply_->cache.refresh(shared_->reclaim); }

  void forget(Chunk* chunk);  // its context is gone

  template <typename Visitor>
  void for_each_pool(Visitor visit) {
    visit_pools(visit);
  }
  template <typename Visitor>
  void for_each_pool(Visitor visit) const {
    visit_pools([&](const BlockPool& pool) { visit(pool); });
  }
  void reset_after_fork() { mutex_.reset(); }

 private:
  // Ends with the last pool there is; most programs have a few, with low numbers.
  template <typename Visitor>
  void visit_pools(Visitor visit) const {
    // How many there are is asked anew each time: one that came meanwhile counted before it was
    // here.
    const auto all = [this] { return pools_used_.load(std::memory_order_acquire); };
    uint64_t seen = 0;
    for (unsigned i = 0; i < kMostThreads && seen < all(); ++i) {
      BlockPool* pool = pools_[i].load(std::memory_order_acquire);
      if (pool == nullptr) continue;
      ++seen;
      visit(*pool);
    }
  }

  BlockPool* pool_for(const Request& request);
  template <typename Allocate>
  bool take_clean_by(Request& request, Allocate allocate);
  BlockPool* create_pool(unsigned number);
  void init_pool(BlockPool* pool, unsigned number);
  bool grows_alone(BlockPool* pool, Request& request);
  int grow(BlockPool* pool, Request& request, uint64_t bytes);
  // False when that gave nothing.
  bool fill_freed(BlockPool& pool) { return gathers() && gather_freed(pool); }
  // Where a plan puts blocks, each is filled by itself.
  bool gathers() const { return role_ == Role::split && supply_->filler.gathers(); }
  bool gather_freed(BlockPool& pool);
  void collect_idle(bool freed_too, ChunkList* out);
  void put_down(Chunk* chunk);
  void close_map(Chunk* chunk);
  // What alignment may cost in a chunk whose base is not aligned.
  uint64_t slack(const Request& request) const {
    return request.bytes + request.room >= sizes_.align ? sizes_.align - kBlockGranule : 0;
  }
  uint64_t chunk_for(const Request& request, uint64_t need, const BlockPool* pool) const {
    const bool first = pool->no_chunk_yet();
    const uint64_t usual = sizes_.chunk_for(need, first);
    if (request.arena == nullptr) return usual;
    return std::max(usual, first ? request.arena->first_chunk : request.arena->later_chunk);
  }
  static uint64_t need_of(const Request& request) {
    return round_up(request.bytes + request.room, kBlockGranule);
  }

  SharedChunks* shared_;
  BlockArenas* arenas_;
  ChunkSupply* supply_;
  Ledger* ledger_;
  Garbage* garbage_;
  uint32_t owner_, party_;
  Role role_;
  ReuseRule rule_;
  ChunkSizes sizes_;
  Mutex mutex_;  // creation of pools
  std::atomic<BlockPool*> pools_[kMostThreads] = {};
  std::atomic<uint64_t> pools_used_{0};
};

}  // namespace cistern::alloc
