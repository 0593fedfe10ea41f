// SPDX-License-Identifier: Apache-2.0
// The common part of all pools that cut blocks from chunks: the lock, free space in bins, the queue
// of freed blocks, sums, and the way from freed to clean. SlabPool and BlockPool add how to find
// and cut a block, and when a chunk leaves.
//
// bookkeeping_of(block) is that of the block's chunk, with the counts `live`, `waiting` and
// `filling` of its blocks. Derived has make_clean(block, emptied), with the lock; and
// end_if_over(bookkeeping, ended), which releases a chunk that has no live blocks and some
// quarantined ones.
//
// Under ReuseRule::same_size a freed block is kept for its size. Such blocks are in
// BlockState::kept and have their own bins, so that no other request finds, cuts or merges them.
// For a freed or kept block, asked_of(block) is the number of bytes that the program last requested
// in it, or 0 if unknown. forget_asked(block) sets it to 0; make_clean(block) then treats the block
// as under the other rules. Derived has set_clean(block), which only sets the state. Any thread:
// functions that look at blocks take the lock; sums are read without it. None calls the driver.
#pragma once

#include <algorithm>

#include "allocator/base/driver_rounding.h"
#include "allocator/base/ledger.h"
#include "allocator/base/mutex.h"
#include "allocator/base/size_bins.h"
#include "allocator/chunk/chunk.h"
#include "allocator/reclaim/freed_queue.h"

namespace cistern::alloc {

template <typename T>
struct CleanBlockTraits {
  static uint64_t size(const T* b) { return b->granules; }
  static T*& next(T* b) { return b->next; }
  static T* prev(T* b) { return b->prev; }
  static void set_prev(T* b, T* p) { b->prev = p; }
};

template <typename T>
struct FreedBlockLinks : NextLink<T> {
  static uint64_t stamp(const T* b) { return b->stamp; }
  static void set_stamp(T* b, uint64_t stamp) { b->stamp = stamp; }
  static uint64_t bytes(const T* b) { return bytes_of(b); }
};

template <typename Derived, typename T, int kBins>
class PoolBase {
 public:
  // For gather(): takes out what was freed, no earlier work can use any more, and must be filled
  // before it is clean. nullptr when there is nothing.
  T* take_unfilled(Reclaim& reclaim) {
    LockGuard guard(mutex_);
    if (closed()) return nullptr;
    const Ticket clean = freed_.clean(reclaim);
    T* taken = nullptr;
    while (freed_.has_clean(clean)) {
      T* block = freed_.pop();
      --bookkeeping_of(block)->waiting;
      ++bookkeeping_of(block)->filling;
      filling_bytes_.own_add(bytes_of(block));
      block->next = taken;
      taken = block;
    }
    if (taken != nullptr) in_hand_.fetch_add(1, std::memory_order_relaxed);
    return taken;
  }

  // It comes back as clean. Chunks that a pool keeps no longer then go to `emptied`, exported ones
  // to `ended`.
  void put_back(T* blocks, ChunkList* emptied, ChunkList* ended) {
    LockGuard guard(mutex_);
    while (blocks != nullptr) {
      T* block = blocks;
      blocks = block->next;
      auto* of_chunk = bookkeeping_of(block);
      --of_chunk->filling;
      filling_bytes_.own_sub(bytes_of(block));
      derived().make_clean(block, emptied);
      derived().end_if_over(of_chunk, ended);
    }
    put_down();
  }

  // Something that came in, or comes back, may not be filled.
  void note_unfilled() { some_unfilled_.store(true, std::memory_order_relaxed); }
  // Whether a block that was handed out before this call is filled for sure.
  bool fills() const { return gathers_ && !some_unfilled_.load(std::memory_order_relaxed); }

  // Memory is out: what is parked only waits from now on, as it would with the driver alone.
  void unpark_everything() {
    LockGuard guard(mutex_);
    freed_.unpark_everything();
  }

  // Start and requested size of the live block around `address`; false if there is none. `chunk` is
  // what the index said; it may have another meaning by now.
  bool find(const Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes) {
    LockGuard guard(mutex_);
    const T* block = derived().live_around(chunk, address);
    if (block == nullptr) return false;
    *start = address_of(block);
    *bytes = block->requested;
    return true;
  }

  // The oldest and newest waiting free; false if none waits.
  bool newest_waiting(Ticket* ticket) const { return freed_.newest(ticket); }
  bool waiting_range(Ticket* oldest, Ticket* newest) {
    LockGuard guard(mutex_);
    return freed_.range(oldest, newest);
  }

  uint64_t largest_clean() {
    LockGuard guard(mutex_);
    return std::max(bins_.largest(), kept_.largest()) * kDriverGranule;
  }

  // The context is gone: everything stays where it is, for forget_all() once nothing is in_hand().
  void close() {
    LockGuard guard(mutex_);
    open_ = Place::nowhere();
  }
  void reset_after_fork() { mutex_.reset(); }

  // How many chunks were taken out and not put_down() by their new owner yet, and threads that fill
  // what they took out.
  int in_hand() const { return in_hand_.load(std::memory_order_acquire); }
  void put_down() { in_hand_.fetch_sub(1, std::memory_order_release); }

  // Without the lock.
  uint64_t waiting_bytes() const { return freed_.waiting_bytes(); }
  uint64_t queued_bytes() const { return freed_.queued_bytes(); }
  uint64_t parked_bytes() const { return freed_.parked_bytes(); }
  uint64_t garbage_bytes() const { return freed_.garbage_bytes(); }
  uint64_t clean_bytes() const { return clean_bytes_.get(); }
  uint64_t quarantined_bytes() const { return quarantined_bytes_.get(); }
  // Requested bytes that are live, and how much of them the Ledger does not know yet.
  uint64_t live() const { return live_.get(); }
  uint64_t unpublished() const { return live_.unpublished(); }

  Counter allocations, frees;  // written under the lock only

 protected:
  // Also of a pool used before (dropped, that is): counters start anew. `here` is what its chunks
  // say of themselves. `garbage`: nullptr for none. `gathers`: what is clean here is filled, as
  // allocator/chunk/gather.h says.
  // prepare(): what else there is to begin, with the lock and before anybody can find the pool.
  template <typename Prepare>
  void begin(Ledger* ledger, Garbage* garbage, Place here, uint32_t party, bool gathers,
             ReuseRule rule, Prepare prepare) {
    freed_.join(garbage, &mutex_, party);
    LockGuard guard(mutex_);
    ledger_ = ledger;
    live_.init(ledger);
    gathers_ = gathers;
    rule_ = rule;
    some_unfilled_.store(false, std::memory_order_relaxed);
    allocations.set(0);
    frees.set(0);
    prepare();
    here_ = open_ = here;
  }

  // All below: with the lock. A chunk changes from and to a pool's role only under the lock of the
  // pool it names.
  bool closed() const { return open_ == Place::nowhere(); }
  bool has(const Chunk* chunk) const { return chunk->at() == open_; }

  // What became clean since is merged with its neighbours: the oldest `most` blocks.
  [[gnu::always_inline]] Ticket refresh_oldest(Reclaim& reclaim, int most, ChunkList* emptied) {
    const Ticket clean = unpark_and_see_clean(reclaim);
    refresh_locked(clean, most, emptied);
    return clean;
  }
  [[gnu::always_inline]] Ticket unpark_and_see_clean(Reclaim& reclaim) {
    if (freed_.parked_may_leave(reclaim)) [[unlikely]]
      freed_.unpark(reclaim);
    return freed_.clean(reclaim);
  }

  // Where has_clean(): that block, if it has just this size and no other waits; else nullptr. It
  // would be merged with its neighbours and cut off again. If others waited too, a pair that
  // repeats itself would leave them waiting for ever.
  [[gnu::always_inline]] T* take_if_alone(uint32_t granules) {
    if (gathers_ || rule_ != ReuseRule::about) [[unlikely]]
      return nullptr;
    T* block = freed_.pop_if_alone([=](const T* b) { return b->granules == granules; });
    if (block != nullptr) --bookkeeping_of(block)->waiting;
    return block;
  }

  // Where fills are gathered, what was freed becomes clean by put_back() alone.
  void refresh_locked(Ticket clean, int most, ChunkList* emptied) {
    if (gathers_) [[unlikely]]
      return;
    for (; most > 0 && freed_.has_clean(clean); --most) {
      T* block = freed_.pop();
      --bookkeeping_of(block)->waiting;
      derived().make_clean(block, emptied);
    }
  }

  void insert(T* block) {
    bins_.insert(block);
    count_clean(block);
  }
  [[gnu::always_inline]] void remove(T* block) {
    bins_.remove(block);
    count_taken(block);
  }
  [[gnu::always_inline]] void count_clean(const T* block) { clean_bytes_.own_add(bytes_of(block)); }
  [[gnu::always_inline]] void count_taken(const T* block) { clean_bytes_.own_sub(bytes_of(block)); }

  bool keeps_sizes() const { return rule_ == ReuseRule::same_size; }
  void keep(T* block) {
    block->become(BlockState::kept);
    kept_.insert(block);
    clean_bytes_.own_add(bytes_of(block));
  }
  void remove_kept(T* block) {
    kept_.remove(block);
    clean_bytes_.own_sub(bytes_of(block));
  }
  // Of a chunk that leaves: whatever of it can be handed out.
  void remove_free(T* block) {
    if (block->is() == BlockState::clean) derived().remove(block);
    if (block->is() == BlockState::kept) remove_kept(block);
  }
  // A block kept for this size, the last one freed first; it is clean like any other now.
  [[gnu::cold]] T* find_kept(uint64_t granules, uint64_t bytes) {
    T* block = kept_.find_equal(granules, [=](const T* kept) { return asked_of(kept) == bytes; });
    if (block == nullptr) return nullptr;
    remove_kept(block);
    derived().set_clean(block);
    derived().insert(block);
    return block;
  }
  // Memory is short: what was kept serves any size. False if nothing was.
  [[gnu::cold]] bool forget_sizes(ChunkList* emptied) {
    if (kept_.largest() == 0) return false;
    ledger_->sizes_forgotten.add();
    while (T* block = kept_.find(1, UINT64_MAX, 1)) {
      remove_kept(block);
      forget_asked(block);
      derived().make_clean(block, emptied);
    }
    return true;
  }

  void note_handed_out(uint64_t bytes) {
    allocations.own_add();
    live_.add(bytes);
  }
  // How much the program had asked for.
  uint64_t note_freed(T* block) {
    block->become(BlockState::waiting);
    frees.own_add();
    const uint64_t bytes = block->requested;
    live_.sub(bytes);
    return bytes;
  }

  // A block in quarantine is `waiting` in no queue: nothing makes it clean.
  void quarantine(uint64_t bytes) {
    quarantined_bytes_.own_add(bytes);
    ledger_->quarantined.add(bytes);
    ledger_->quarantined_peak.raise_to(ledger_->quarantined.get());
  }
  void end_quarantine(uint64_t bytes) {
    quarantined_bytes_.own_sub(bytes);
    ledger_->quarantined.sub(bytes);
  }

  void hand_over(Chunk* chunk, ChunkList* out) {
    chunk->become(Role::released);
    chunk->cut = true;
    in_hand_.fetch_add(1, std::memory_order_relaxed);
    out->push(chunk);
  }

  void forget_blocks() {
    bins_ = kept_ = {};
    freed_.clear();
    clean_bytes_.set(0);
    end_quarantine(quarantined_bytes_.get());
    live_.forget_all();
  }

  Mutex mutex_;
  Place here_;  // of its chunks
  SizeBins<T, CleanBlockTraits<T>, kBins> bins_;
  FreedQueue<T, FreedBlockLinks<T>> freed_;
  Counter filling_bytes_;  // taken out by take_unfilled() and not back yet; BlockPool tells of it
  Ledger* ledger_;
  ReuseRule rule_ = ReuseRule::about;

 private:
  Derived& derived() { return static_cast<Derived&>(*this); }

  Place open_;  // as here_; nowhere() once it is closed
  Counter clean_bytes_, quarantined_bytes_;
  LiveCount live_;
  bool gathers_ = false;
  std::atomic<bool> some_unfilled_{false};
  std::atomic<int> in_hand_{0};
  SizeBins<T, CleanBlockTraits<T>, kBins> kept_;
};

}  // namespace cistern::alloc
