// SPDX-License-Identifier: Apache-2.0
// The pool of host memory. It reserves *chunks* of address space, and hands out *extents*, runs of
// whole pages in them, to a malloc that cuts them further and gives them back. Freed extents are
// kept for reuse; release_idle() returns their pages to the system, not their addresses.
//
// A chunk's pages become usable ("committed") step by step, so a system without overcommit charges
// only what is used. If the policy says so, each step is also locked. An extent that is larger than
// a chunk, or at least HostPolicy::own_bytes, gets a chunk of its own, which is unmapped when the
// extent is given back.
//
// Any thread; one lock. Pages are returned to the system without the lock. They are obtained under
// the lock, which takes long if a whole chunk is locked in memory, at once (HostPolicy::eager) or
// again (lock_again()). Nothing here allocates from malloc, changes errno or is a cancellation
// point. Around a fork call lock() before, unlock() in the parent, and unlock_in_child() in the
// child, whose pages are not locked in memory (mlock(2)).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/base/records.h"
#include "allocator/base/size_bins.h"
#include "allocator/base/threads.h"

namespace cistern::alloc::host {

inline constexpr uint64_t kPage = 4096;
inline constexpr uint64_t kChunkAlignment = uint64_t{2} << 20;

struct HostPolicy {
  uint64_t chunk_bytes;             // size of a chunk; a larger request gets a larger one
  uint64_t own_bytes = UINT64_MAX;  // requests of at least this size get a chunk of their own
  uint64_t most_idle = UINT64_MAX;  // idle bytes beyond this go back at once, oldest first
  // Returns an upper limit for chunk_bytes. Called once, by the first request, with the lock held,
  // because it takes long. Null: no limit.
  uint64_t (*most_chunk_bytes)() = nullptr;
  bool locks;            // lock each page in memory when it is touched
  bool eager;            // lock, and so touch, a whole chunk at once
  uint64_t most_locked;  // bytes, of all chunks together
  // Called when the system refuses to lock more than `locked` of `wanted` bytes; once at most. It
  // must not call the pool. No lock is held.
  void (*lock_refused)(uint64_t locked, uint64_t wanted);
};

// In bytes, except the counts. The parts may be read at slightly different moments.
struct HostUsage {
  uint64_t chunks;
  uint64_t reserved;   // address space
  uint64_t committed;  // usable
  uint64_t live;       // handed out
  uint64_t idle;       // freed, with pages that may be resident
  uint64_t released;   // sum of all that went back to the system from idle extents
  uint64_t locked;
  uint64_t refused;  // bytes that the system refused to lock
  uint64_t failed;   // requests for which there was no memory
};

struct HostChunk;

// Pages of a free run that may be resident: `pages` at most, all between `first` and `end`.
struct Touched {
  uint32_t first = 0, end = 0;
  uint32_t pages = 0;

  Touched with(const Touched& other) const;
  Touched within(uint64_t from, uint64_t to) const;
};

// A free run of pages.
struct HostExtent {
  HostExtent* next;  // in its bin
  HostExtent* prev;
  HostExtent* older;  // in the list of extents whose pages may be resident
  HostExtent* newer;
  HostChunk* chunk;
  uint32_t first, count;  // pages
  Touched touched;        // all other pages read as zero: never touched, or given back since
  uint64_t freed_at_ns;   // when its largest part with pages that may be resident was freed
};

class HostPool {
 public:
  void init(const HostPolicy& policy) {
    policy_ = policy;
    most_idle_.store(policy.most_idle);
  }

  // Takes `bytes` (a multiple of kPage) at a multiple of `alignment` (a power of two, at least
  // kPage); nullptr if the system has none. *zero: on entry whether the pages must be zero, on
  // return whether they are.
  void* take(uint64_t bytes, uint64_t alignment, bool* zero);
  // As take(), if the system has no room for all of `bytes`: only the first `backed` bytes (a
  // multiple of kPage) are usable. The caller must never touch the rest, and must give the block
  // back whole.
  void* take_backed(uint64_t bytes, uint64_t backed);
  // The usable bytes from `memory` on, if it is in a block of take_backed(); otherwise UINT64_MAX.
  // No lock.
  uint64_t backed_from(const void* memory) const;
  // Gives back what take() returned, or a part of it. False if it does not belong to the pool.
  bool give_back(void* memory, uint64_t bytes);
  // note_split(): two parts of an extent will come back separately. note_merged(): two of them will
  // come back as one. False, and nothing is noted, if there is no memory for one more record or if
  // the extent is from take_backed().
  bool note_split(const void* memory = nullptr);
  void note_merged() { handed_out_.fetch_sub(1, std::memory_order_relaxed); }
  // Moves the contents of `from` to `to`, a larger extent that take() returned later. If both have
  // chunks of their own, it moves pages; otherwise it copies. After that the caller may only give
  // `from` back. False: `to` is lost and must never be given back; `from` is unchanged.
  bool move(void* from, void* to, uint64_t bytes);
  // Whether both lie in one chunk, so they may be given back as one extent. No lock.
  bool same_chunk(const void* a, const void* b) const;

  // Returns the pages of extents that were freed at least `age_ns` ago to the system. True if
  // others are idle and will become old enough.
  bool release_idle(uint64_t age_ns);

  // Sets a new HostPolicy::most_idle.
  void keep_idle(uint64_t most_bytes);
  // The caller keeps `bytes` unused that it took: the pool may keep so many fewer idle. No lock.
  void count_as_idle(uint64_t bytes) { kept_by_caller_.store(bytes, std::memory_order_relaxed); }
  // Returns idle bytes beyond the limit to the system. No lock if there are none.
  void release_too_much() {
    if (too_much_idle()) release_beyond(may_be_idle());
  }
  // Whether give_back() has exceeded the limit on idle bytes since the last call. No lock.
  bool was_full() {
    return full_.load(std::memory_order_relaxed) &&
           full_.exchange(false, std::memory_order_relaxed);
  }

  // Calls inside(start, bytes) for each piece of [memory, memory + bytes) that the pool has locked,
  // and outside(start, bytes) for the rest.
  template <typename Inside, typename Outside>
  void for_each_locked(uintptr_t start, uint64_t bytes, Inside inside, Outside outside) const;
  // The program unlocked all its memory (munlockall): locks the pool's pages again.
  void lock_again();

  HostUsage usage() const;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  void unlock_in_child();

 private:
  struct BinTraits {
    static uint64_t size(const HostExtent* e) { return e->count; }
    static HostExtent*& next(HostExtent* e) { return e->next; }
    static HostExtent* prev(HostExtent* e) { return e->prev; }
    static void set_prev(HostExtent* e, HostExtent* prev) { e->prev = prev; }
  };
  static constexpr int kLevels = 28, kProbes = 8;
  static constexpr int kMaxChunks = 65535;
  // A chunk begins at a multiple of 2 MiB, so each unit of 2 MiB in the 2^47 bytes of addresses
  // belongs to one chunk at most. A two-level table has the number of that chunk, or 0.
  static constexpr int kUnitBits = 21, kLeafBits = 13, kRootBits = 13;
  using Leaf = std::atomic<uint16_t>[1 << kLeafBits];

  bool name_units(uintptr_t base, uint64_t bytes, uint16_t number);
  bool any_unit_named(uintptr_t base, uint64_t bytes) const;
  void* reserve_unnamed(uint64_t bytes, uint64_t mapped, uint64_t alignment) const;

  // HostExtent::freed_at_ns of pages that the system refused to take back: they are not offered
  // again.
  static constexpr uint64_t kNeverOld = UINT64_MAX;

  HostChunk* chunk_of(uintptr_t address) const;
  HostChunk* add_chunk(uint64_t bytes, uint64_t mapped, uint64_t alignment, bool own);
  void* take_free(uint64_t pages, uint64_t alignment, bool* zero);
  void* take_fresh(HostChunk* chunk, uint64_t pages, uint64_t alignment);
  void* take_from_new_chunk(uint64_t pages, uint64_t alignment);
  void offer_rest_of_current();
  void* take_pages(uint64_t pages, uint64_t alignment, bool* zero);
  bool commit(HostChunk* chunk, uint64_t pages);
  void lock_pages(HostChunk* chunk, uint64_t first, uint64_t end);
  uint64_t records_wanted() const;
  bool have_records(uint64_t more);
  bool make_records();
  HostExtent* take_record();
  void give_record(HostExtent* record);
  void put(HostChunk* chunk, uint64_t first, uint64_t count, Touched touched, uint64_t now_ns);
  void take_out(HostExtent* extent);
  void note_idle(HostExtent* extent);
  void forget_idle(HostExtent* extent);
  uint64_t most_to_take_out();
  HostExtent* take_old(uint64_t before_ns);
  HostExtent* take_beyond(uint64_t idle_bytes);
  HostExtent* begin_release(HostExtent* extent, HostExtent* list);
  void release(HostExtent* list, uint64_t now_ns);
  void release_beyond(uint64_t idle_bytes);
  uint64_t may_be_idle() const {
    const uint64_t most = most_idle_.load(std::memory_order_relaxed);
    return most - std::min(most, kept_by_caller_.load(std::memory_order_relaxed));
  }
  bool too_much_idle() const { return releasable_.load(std::memory_order_relaxed) > may_be_idle(); }
  struct Retired {
    uintptr_t base;
    uint64_t bytes, mapped;
    HostExtent** at;
  };
  Retired retire_if_unused(HostChunk* chunk);
  Retired retire(HostChunk* chunk);
  bool retire_free_chunks();
  static void unmap(const Retired& retired);

  HostPolicy policy_{};
  mutable Mutex mutex_;
  std::atomic<HostChunk*> chunks_{nullptr};  // kMaxChunks of them, in a mapping of their own
  std::atomic<int> used_{0};                 // how many of chunks_ are used
  HostChunk* current_ = nullptr;             // the only one with pages that were never handed out
  std::atomic<Leaf*> roots_[1 << kRootBits] = {};
  SizeBins<HostExtent, BinTraits, kLevels> bins_;
  // Records of free extents are made before they are needed, so give_back() never fails for lack of
  // one. In front of each free extent lies the beginning of its chunk, an extent that is handed
  // out, or one that release_idle() has taken out. So there are never more free extents than these.
  HostExtent* spare_records_ = nullptr;
  uint64_t records_ = 0;                 // made, in use or spare
  std::atomic<uint64_t> handed_out_{0};  // extents that will come back, each by itself
  uint64_t taken_out_ = 0;               // by release_idle()
  // The extents whose pages may go back to the system.
  HostExtent* newest_idle_ = nullptr;
  HostExtent* oldest_idle_ = nullptr;
  std::atomic<uint64_t> releasable_{0};  // their bytes; written with the lock
  std::atomic<uint64_t> most_idle_{UINT64_MAX}, kept_by_caller_{0};
  std::atomic<bool> full_{false};
  HostUsage sums_{};
  bool lock_was_refused_ = false;
  bool refusal_told_ = false;
};

struct HostChunk {
  std::atomic<uintptr_t> base;  // 0: this entry of chunks_ is free
  std::atomic<uint64_t> bytes;
  // Bytes that are mapped: fewer than `bytes` in a block of take_backed(), 0 once its pages have
  // moved away.
  std::atomic<uint64_t> mapped;
  bool own;                      // made for a single extent
  uint64_t fresh;                // pages from here on were never handed out
  uint64_t committed;            // pages up to here may be touched
  std::atomic<uint64_t> locked;  // pages up to here are locked
  uint64_t live;                 // pages handed out
  uint64_t on_the_way;           // pages that release_idle() has taken out
  HostExtent** at;               // by page: the free extent that begins or ends there

  uintptr_t address_of(uint64_t page) const {
    return base.load(std::memory_order_relaxed) + page * kPage;
  }
  uint64_t pages() const { return bytes.load(std::memory_order_relaxed) / kPage; }
};

template <typename Inside, typename Outside>
void HostPool::for_each_locked(uintptr_t start, uint64_t bytes, Inside inside,
                               Outside outside) const {
  const uintptr_t end = start + bytes;
  while (start < end) {
    uintptr_t piece_end = end;
    bool locked = false;
    const HostChunk* chunks = chunks_.load(std::memory_order_acquire);
    for (int i = 0, n = used_.load(std::memory_order_acquire); i < n; ++i) {
      const uintptr_t base = chunks[i].base.load(std::memory_order_acquire);
      const uintptr_t locked_end = base + chunks[i].locked.load() * kPage;
      if (base == 0 || base == locked_end) continue;
      if (start >= base && start < locked_end) {
        locked = true;
        piece_end = locked_end < end ? locked_end : end;
        break;
      }
      if (base > start && base < piece_end) piece_end = base;
    }
    if (locked) {
      inside(start, piece_end - start);
    } else {
      outside(start, piece_end - start);
    }
    start = piece_end;
  }
}

}  // namespace cistern::alloc::host
