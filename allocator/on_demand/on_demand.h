// SPDX-License-Identifier: Apache-2.0
// The default strategy, when no setting names another one: memory by actual size, on demand.
//
// Requests of 1 MiB and more keep driver allocations whole, so that NCCL, MPI and RDMA see real
// bases; smaller ones are cut from 2 MiB slabs. The pool keeps as much as the program held within
// the last second, plus a floor; idle memory beyond that goes back to the driver. Before a request
// fails, all memory that is not live goes back. So with requests of 1 MiB and more the program runs
// out of memory only where the driver alone would.
//
// Small blocks are sharded: threads spread over kShards independent SlabPools. A freed block goes
// to the shard it came from. Any thread; no lock is held while the chunk layer is called.
#pragma once

#include <algorithm>

#include "allocator/base/ledger.h"
#include "allocator/base/source.h"
#include "allocator/chunk/chunk_supply.h"
#include "allocator/on_demand/slab_pool.h"

namespace cistern::alloc {

// Smaller requests are cut from slabs. The driver lets the same requests share pages.
inline constexpr uint64_t kWholeBytes = kDriverSharesBelow;

class OnDemand {
 public:
  static constexpr int kShards = 8;
  // Idle bytes that may always stay: this, or an eighth of the live peak if that is more.
  static constexpr uint64_t kIdleFloor = uint64_t{64} << 20;

  // The most bytes that its pools together may have live but not yet published: for each,
  // LiveCount's step and a small block that is being added.
  static constexpr uint64_t kMostUnpublished = kShards * (LiveCount::kStep + kWholeBytes);

  void init(SharedChunks* shared, SlabArena* slabs, ChunkSupply* supply, const DeviceParts& device,
            uint32_t owner);

  // Serves the request from clean memory at hand.
  bool take_clean(Request& request) {
    return request.bytes < kWholeBytes ? take_small(request) : take_whole(request);
  }

  // Serves the request from a new chunk. Returns a result code of the source.
  int take_fresh(Request& request);

  // take_fresh() after everything idle was released.
  int take_fresh_of_any_size(Request& request, Step* step) {
    *step = Step::returned;
    return take_fresh(request);
  }
  bool can_ask_for_less() const { return false; }

  // take_from_anywhere(): the last attempt, if the driver has no chunk of the usual size.
  // worth_waiting(): whether to repeat it once more memory is clean. That is so for small blocks,
  // which may be in any slab; large blocks have gone to the driver.
  bool take_from_anywhere(Request& request, Step* step);
  bool worth_waiting(const Request& request) const { return request.bytes < kWholeBytes; }

  // Under ReuseRule::same_size: serves the request from clean memory that was kept for other sizes.
  // Otherwise false.
  bool take_of_other_sizes(Request& request);

  static constexpr uint64_t most_pools() { return kShards; }

  // For chunks of Role::slab. Returns the requested size; 0 if `address` is not the start of a live
  // block. `waiting`: the waiting bytes of the block's pool.
  uint64_t free(const Chunk* chunk, uint64_t address, Ticket latest, uint64_t* waiting);
  bool find(const Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes);
  // SlabPool::mark_exported().
  bool mark_exported(Chunk* chunk, uint64_t address) {
    return pool_of(chunk).mark_exported(chunk, address);
  }

  // With gathered fills: fills the freed blocks that no work can touch any more.
  void fill_freed() {
    for (SlabPool& pool : slabs_) fill_freed(pool);
  }

  // Whether a block that was just handed out from this chunk is filled.
  bool fills(const Chunk* chunk) { return pool_of(chunk).fills(); }

  // Takes the chunks that no work can touch any more out of the pools, for the driver.
  void collect_clean(ChunkList* out) { collect_empty(false, out); }

  // Takes every chunk in which nothing is live out of the pools, for the driver.
  void collect_all(ChunkList* out) { collect_empty(true, out); }

  // Makes freed blocks clean that no work can touch any more, and merges them. With `spare_too` the
  // pools keep no empty slab.
  void refresh(bool spare_too);

  // Idle chunks, and the oldest of them if it is old enough (ChunkCache).
  IdleChunks see_idle(Tick now) { return supply_->cache.see_idle(now); }
  void collect_aged(Tick now, uint32_t least, ChunkList* out, uint64_t most = UINT64_MAX) {
    supply_->cache.collect_aged(now, least, out, most);
  }

  // An idle chunk serves only requests of about its size.
  static constexpr bool kCutsIdleChunks = false;
  static constexpr bool kHasIdleBudget = true;

  // Whether idle, parked and waiting bytes together exceed the floor. Otherwise idle memory cannot
  // exceed the budget before another free. `waiting`: bytes that wait elsewhere.
  bool over_floor(uint64_t waiting = 0) const {
    const ChunkCache& cache = supply_->cache;
    return !shared_->idle.no_budget &&
           cache.idle_or_parked_bytes() + cache.waiting_bytes() + waiting > idle_floor();
  }
  // over_budget(): whether more is idle than may stay once `coming` bytes were obtained.
  // collect_excess(): moves the oldest idle chunk into `out` if so. Call refresh_chunks() first: it
  // makes chunks idle that have become clean.
  void refresh_chunks() { supply_->cache.refresh(shared_->reclaim); }
  bool over_budget(uint64_t coming = 0) const {
    return over_floor() && supply_->cache.idle_or_parked_bytes() > idle_budget(coming);
  }
  bool far_over_budget() const {
    return over_floor() && supply_->cache.idle_or_parked_bytes() / 2 > idle_budget();
  }
  // Whether some excess should go at once, even in a free.
  bool must_give_back() const { return false; }
  void collect_excess(ChunkList* out, uint64_t coming = 0) {
    supply_->cache.refresh(shared_->reclaim);
    if (!over_budget(coming)) return;
    supply_->cache.collect_idle(idle_budget(coming), shared_->reclaim, out);
  }
  // If over the budget: the oldest idle chunk that a look has seen (see_idle()), if its age is at
  // least `least`.
  void collect_aged_excess(Tick look, uint32_t least, uint64_t coming, ChunkList* out) {
    if (over_budget(coming)) collect_aged(look, least, out);
  }

  void forget(Chunk* chunk);  // its context is gone

  // The pools of small blocks, for totals.
  template <typename Visitor>
  void for_each_pool(Visitor visit) {
    for (SlabPool& pool : slabs_) visit(pool);
  }
  template <typename Visitor>
  void for_each_pool(Visitor visit) const {
    for (const SlabPool& pool : slabs_) visit(pool);
  }
  void reset_after_fork() {}

 private:
  void collect_empty(bool freed_too, ChunkList* out);
  bool take_whole(Request& request);
  bool take_whole_of_about(Request& request);
  bool take_whole_by_rule(Request& request);
  bool take_small_from_any_slab(Request& request);
  bool take_small_from_idle_chunk(Request& request);
  bool same_size() const { return rule_ == ReuseRule::same_size; }
  static bool hand_out_whole(const Chunk* chunk, Request& request);
  bool take_small(Request& request);
  [[gnu::cold]] bool take_small_after_fill(Request& request);
  bool add_slab(Chunk* chunk, unsigned shard);
  // False if no memory was filled.
  bool fill_freed(SlabPool& pool) { return supply_->filler.gathers() && gather_freed(pool); }
  bool gather_freed(SlabPool& pool);
  void make_idle(ChunkList* emptied);
  void release_slabs(ChunkList* ended);
  void become_chunks(const ChunkList* slabs);
  uint64_t idle_floor() const {
    constexpr uint64_t kShare = 8;
    return std::max(kIdleFloor, ledger_->live_peak.get() / kShare);
  }
  uint64_t idle_budget(uint64_t coming = 0) const;
  SlabPool& pool_of(const Chunk* chunk) { return slabs_[chunk->at().shard()]; }

  SharedChunks* shared_;
  SlabArena* slab_arena_;
  ChunkSupply* supply_;
  Ledger* ledger_;
  Garbage* garbage_;
  ReuseRule rule_;
  SlabPool slabs_[kShards];
};

}  // namespace cistern::alloc
