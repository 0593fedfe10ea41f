// SPDX-License-Identifier: Apache-2.0
// The chunk strategies (legacy, naive_best_fit, auto_growth, thread_local): few large chunks, with
// every request a block inside one. They differ in the sizes of their chunks (chunk_sizes.h), in
// when they merge neighbours, and in the number of pools: one, or one for each thread number. A
// freed block goes to the pool it came from, whichever thread frees it.
//
// Any thread; no lock is held while the chunk layer is called.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "allocator/base/ledger.h"
#include "allocator/chunk/chunk_supply.h"
#include "allocator/chunk_pools/block_pool.h"
#include "allocator/chunk_pools/chunk_sizes.h"

namespace cistern::alloc {

inline constexpr unsigned kMostThreads = 256;

// Small numbers for threads. Under the strategy thread_local each number has a pool of its own.
// When a thread ends, the next thread that needs a number gets its number and pool. Lock-free; any
// thread.
class ThreadNumbers {
 public:
  // The number that all threads share once the others are taken. It is never released.
  static constexpr unsigned kCommon = kMostThreads - 1;

  // Takes the lowest free number, or kCommon.
  unsigned acquire() {
    for (unsigned word = 0; word < kWords; ++word) {
      uint64_t seen = taken_[word].load(std::memory_order_relaxed);
      while (~seen != 0) {
        const auto bit = static_cast<unsigned>(std::countr_one(seen));
        const unsigned number = word * 64 + bit;
        if (number == kCommon) return kCommon;
        if (taken_[word].compare_exchange_weak(seen, seen | uint64_t{1} << bit,
                                               std::memory_order_acq_rel)) {
          return number;
        }
      }
    }
    return kCommon;
  }

  void release(unsigned number) {
    if (number == kCommon) return;
    taken_[number / 64].fetch_and(~(uint64_t{1} << number % 64), std::memory_order_acq_rel);
  }

 private:
  static constexpr unsigned kWords = kMostThreads / 64;

  std::atomic<uint64_t> taken_[kWords] = {};
};

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

// For strategies whose idle memory serves requests of any size: they keep it until memory is short.
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
  // The most bytes that its pools together may have live but not yet published: one block of any
  // size.
  static constexpr uint64_t kMostUnpublished = uint64_t{1} << 62;

  // `role`: that of its chunks, Role::split or Role::planned.
  void init(SharedChunks* shared, BlockArenas* arenas, ChunkSupply* supply,
            const DeviceParts& device, uint32_t owner, const ChunkSizes& sizes,
            Role role = Role::split);

  // Serves the request from clean memory of its pool: the thread's, the arena's or the only one.
  bool take_clean(Request& request);
  // As take_clean(), with Request::room behind the block.
  bool take_clean_with_room(Request& request);
  // Under ReuseRule::same_size: serves the request from a clean block that was kept for its size.
  // Otherwise false.
  bool take_same(Request& request);

  // Serves the request from a new chunk of the usual size, or of the request's size if that is
  // larger. Returns a result code of the source.
  int take_fresh(Request& request);

  // As take_fresh(), from whatever memory the driver still has. Tries chunks of half the size again
  // and again, down to 1 MiB, then one of just the request's size. A request below 1 MiB then gets
  // a driver allocation of its own. *step: the step that was tried last.
  int take_fresh_of_any_size(Request& request, Step* step);
  bool can_ask_for_less() const { return true; }

  // For a plan (allocator/plan_arena.h), in the first pool. add_chunk(): adds a chunk of `bytes`,
  // which becomes the newest one; false if it cannot. take_at(): BlockPool::allocate_at().
  bool add_chunk(uint64_t bytes);
  uint64_t take_at(BlockPool& pool, uint64_t offset, uint64_t bytes) {
    return pool.allocate_at(offset, bytes, shared_->reclaim);
  }

  // The last attempt: looks at every free block of every pool. Worth repeating once more memory is
  // clean.
  bool take_from_anywhere(Request& request, Step* step);
  bool worth_waiting(const Request& request) const { return true; }

  uint64_t most_pools() const { return pools_used_.load(std::memory_order_relaxed); }

  // For chunks of this object's role. find(): PoolBase::find().
  bool find(const Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes);
  // BlockPool::mark_exported().
  bool mark_exported(const Chunk* chunk, uint64_t address);

  // pool_of(): the pool of a chunk. release_exported(): releases the chunks that a free, or the end
  // of a group, moved into its list `ended`.
  BlockPool* pool_of(const Chunk* chunk) {
    return pools_[chunk->at().shard()].load(std::memory_order_acquire);
  }
  void release_exported(ChunkList* ended);

  // The number of the pool for members of groups, beside the default strategy.
  static constexpr unsigned kBesideOnDemand = 0;

  // For graph_arena, which uses pools as arenas. pool_at(): a pool by its number; nullptr if there
  // is none yet. collect_clean_of(): takes out its clean chunks. collect_one_idle(): takes out one
  // idle chunk, if there is one.
  BlockPool* pool_at(unsigned number) const {
    return pools_[number].load(std::memory_order_acquire);
  }
  void collect_clean_of(unsigned number, ChunkList* out);
  void collect_one_idle(unsigned number, ChunkList* out);
  // Takes out one idle chunk of the first pool, but not its newest chunk.
  void collect_idle_before_newest(ChunkList* out);

  // With gathered fills: fills the freed blocks that no work can touch any more, in one pool or in
  // all.
  void fill_freed_of(unsigned number);
  void fill_freed() {
    for_each_pool([this](BlockPool& pool) { fill_freed(pool); });
  }

  // Whether a block that was just handed out from this chunk is filled.
  bool fills(const Chunk* chunk) {
    const BlockPool* pool = pool_of(chunk);
    return pool != nullptr && pool->fills();
  }

  // Takes every chunk in which nothing is live out of the pools, for the driver.
  void collect_all(ChunkList* out) { collect_idle(true, out); }

  // Takes out only those chunks in which nothing waits either.
  void collect_clean(ChunkList* out) { collect_idle(false, out); }

  // BlockPool::refresh() for every pool.
  void refresh(bool) {
    for_each_pool([this](BlockPool& pool) { pool.refresh(shared_->reclaim); });
  }

  // Idle chunks of the pools and the chunk layer, and one of them if it is old enough (BlockPool,
  // ChunkCache).
  IdleChunks see_idle(Tick now);
  void collect_aged(Tick now, uint32_t least, ChunkList* out, uint64_t most = UINT64_MAX);
  // The same without the chunk layer.
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
    // The count is read anew each time, because a new pool is counted before it can be found.
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
  // False if no memory was filled.
  bool fill_freed(BlockPool& pool) { return gathers() && gather_freed(pool); }
  // The blocks of a plan are filled one by one.
  bool gathers() const { return role_ == Role::split && supply_->filler.gathers(); }
  bool gather_freed(BlockPool& pool);
  void collect_idle(bool freed_too, ChunkList* out);
  void put_down(Chunk* chunk);
  void close_map(Chunk* chunk);
  // Bytes that alignment may waste in a chunk whose base is not aligned.
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
