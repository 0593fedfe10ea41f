// SPDX-License-Identifier: Apache-2.0
// The common part of all pools that cut blocks from chunks: the lock, free space in bins, the queue
// of freed blocks, sums, and the way from freed to clean. SlabPool and BlockPool add how to find
// and cut a block, and when a chunk leaves.
//
// bookkeeping_of(block) is the record of the block's chunk (Slab or ChunkMap). It counts `live`,
// `waiting` and `filling` blocks. Derived has two functions, called with the lock held.
// make_clean(block, emptied) makes a freed block clean. end_if_over(bookkeeping, ended) releases a
// chunk that has quarantined blocks and no live ones.
//
// Under ReuseRule::same_size a freed block is kept for its size. Such blocks are in
// BlockState::kept and have their own bins, so that no other request finds, cuts or merges them.
// For a freed or kept block, asked_of(block) is the number of bytes that the program last requested
// in it, or 0 if unknown. forget_asked(block) sets it to 0; make_clean(block) then treats the block
// as under the other rules. Derived has set_clean(block), which only sets the state. Any thread:
// functions that look at blocks take the lock; sums are read without it. None calls the driver.
#pragma once

#include <algorithm>

#include "allocator/base/ledger.h"
#include "allocator/base/size_bins.h"
#include "allocator/base/source.h"
#include "allocator/base/threads.h"
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
  // For gather(): takes out the freed blocks that no earlier work can touch any more, to be filled.
  // Returns a list; nullptr if there are none.
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

  // The blocks of take_unfilled() come back, and are clean. If the pool does not keep a chunk that
  // is empty by this, it goes to `emptied`; an exported chunk goes to `ended`.
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

  // A chunk that comes in, or blocks that come back, may be unfilled.
  void note_unfilled() { some_unfilled_.store(true, std::memory_order_relaxed); }
  // True if every block that was handed out before this call is filled.
  bool fills() const { return gathers_ && !some_unfilled_.load(std::memory_order_relaxed); }

  // Memory is short: parked blocks wait from now on. With the driver alone they would be free.
  void unpark_everything() {
    LockGuard guard(mutex_);
    freed_.unpark_everything();
  }

  // Start and requested size of the live block around `address`; false if there is none. `chunk` is
  // what the index returned; its record may have been recycled since.
  bool find(const Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes) {
    LockGuard guard(mutex_);
    const T* block = derived().live_around(chunk, address);
    if (block == nullptr) return false;
    *start = address_of(block);
    *bytes = block->requested;
    return true;
  }

  // The tickets of the oldest and newest waiting free; false if none waits.
  bool newest_waiting(Ticket* ticket) const { return freed_.newest(ticket); }
  bool waiting_range(Ticket* oldest, Ticket* newest) {
    LockGuard guard(mutex_);
    return freed_.range(oldest, newest);
  }

  uint64_t largest_clean() {
    LockGuard guard(mutex_);
    return std::max(bins_.largest(), kept_.largest()) * kDriverGranule;
  }

  // The context is gone: nothing is handed out any more. Once in_hand() is 0, call forget_all().
  void close() {
    LockGuard guard(mutex_);
    open_ = Place::nowhere();
  }
  void reset_after_fork() { mutex_.reset(); }

  // How many chunks were taken out and not yet put_down() by their new owner, plus the threads that
  // fill blocks they took out.
  int in_hand() const { return in_hand_.load(std::memory_order_acquire); }
  void put_down() { in_hand_.fetch_sub(1, std::memory_order_release); }

  // Without the lock.
  uint64_t waiting_bytes() const { return freed_.waiting_bytes(); }
  uint64_t queued_bytes() const { return freed_.queued_bytes(); }
  uint64_t parked_bytes() const { return freed_.parked_bytes(); }
  uint64_t garbage_bytes() const { return freed_.garbage_bytes(); }
  uint64_t clean_bytes() const { return clean_bytes_.get(); }
  uint64_t quarantined_bytes() const { return quarantined_bytes_.get(); }
  // Live requested bytes, and how many of them the Ledger does not count yet.
  uint64_t live() const { return live_.get(); }
  uint64_t unpublished() const { return live_.unpublished(); }

  Counter allocations, frees;  // written under the lock only

 protected:
  // Begins a pool, also one that was used before; its counters start at 0. `here`: the place of its
  // chunks. `garbage`: nullptr if no setting keeps any. `gathers`: clean memory here is filled
  // (fill.h). prepare() does the rest of the setup, with the lock and before any thread can find
  // the pool.
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

  // Call all functions below with the lock. A chunk enters and leaves a pool's place only under the
  // lock of that pool.
  bool closed() const { return open_ == Place::nowhere(); }
  bool has(const Chunk* chunk) const { return chunk->at() == open_; }

  // Makes the `most` oldest blocks clean that no work can touch any more, and merges them with
  // their neighbours. Returns Reclaim::clean().
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

  // Call it only if has_clean(). Takes the oldest waiting block if it has exactly this size and no
  // other block waits; otherwise nullptr. This saves merging it with its neighbours and cutting it
  // off again. If other blocks waited too, a repeated pair of an allocation and a free would leave
  // them waiting for ever.
  [[gnu::always_inline]] T* take_if_alone(uint32_t granules) {
    if (gathers_ || rule_ != ReuseRule::about) [[unlikely]]
      return nullptr;
    T* block = freed_.pop_if_alone([=](const T* b) { return b->granules == granules; });
    if (block != nullptr) --bookkeeping_of(block)->waiting;
    return block;
  }

  // With gathered fills, only put_back() makes freed blocks clean.
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
  // For a chunk that leaves: takes the block out of its bin, if it is in one.
  void remove_free(T* block) {
    if (block->is() == BlockState::clean) derived().remove(block);
    if (block->is() == BlockState::kept) remove_kept(block);
  }
  // A block that is kept for this size, the last freed first; nullptr if there is none. It is an
  // ordinary clean block from now on.
  [[gnu::cold]] T* find_kept(uint64_t granules, uint64_t bytes) {
    T* block = kept_.find_equal(granules, [=](const T* kept) { return asked_of(kept) == bytes; });
    if (block == nullptr) return nullptr;
    remove_kept(block);
    derived().set_clean(block);
    derived().insert(block);
    return block;
  }
  // Memory is short: blocks that were kept for their size serve any size. False if there were none.
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
  // Returns the requested size.
  uint64_t note_freed(T* block) {
    block->become(BlockState::waiting);
    frees.own_add();
    const uint64_t bytes = block->requested;
    live_.sub(bytes);
    return bytes;
  }

  // A block in quarantine has the state `waiting` but is in no queue, so nothing makes it clean.
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
  Place here_;  // the place of its chunks
  SizeBins<T, CleanBlockTraits<T>, kBins> bins_;
  FreedQueue<T, FreedBlockLinks<T>> freed_;
  Counter filling_bytes_;  // taken out by take_unfilled() and not back yet; BlockPool reads it
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
