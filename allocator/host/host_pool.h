// SPDX-License-Identifier: Apache-2.0
// The pool of host memory. It reserves *chunks* of address space, and hands out *extents*, runs of
// whole pages in them, to a malloc that cuts them further and gives them back. Freed extents are
// kept for reuse; release_idle() returns their pages to the system, not their addresses.
//
// A chunk's pages become usable ("committed") step by step, so that a system that promises no more
// memory than it has charges what is used, and are locked with that step where wanted. An extent
// larger than a chunk, or as large as HostPolicy::own_bytes, gets a chunk of its own, which is
// unmapped with it.
//
// Any thread; one lock. The system takes pages back without it; under it they are only given, which
// takes long for a chunk that is locked at once (HostPolicy::eager) or again (lock_again). Nothing
// here allocates from malloc, changes errno or is a cancellation point. A forked process: lock()
// before, unlock() in the parent, unlock_in_child() in the child, whose memory is not locked
// (mlock(2)).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/base/arena.h"
#include "allocator/base/mutex.h"
#include "allocator/base/size_bins.h"

namespace cistern::alloc::host {

inline constexpr uint64_t kPage = 4096;
inline constexpr uint64_t kChunkAlignment = uint64_t{2} << 20;

struct HostPolicy {
  uint64_t chunk_bytes;             // of a chunk, but for larger requests
  uint64_t own_bytes = UINT64_MAX;  // from here on a request gets a chunk of its own
  uint64_t most_idle = UINT64_MAX;  // bytes: what is idle beyond goes back at once, oldest first
  // The most of those; asked once, by the first request, with the lock held: it takes long to find
  // out. Null: no limit.
  uint64_t (*most_chunk_bytes)() = nullptr;
  bool locks;            // lock pages, as they are touched
  bool eager;            // lock, and so touch, a whole chunk at once
  uint64_t most_locked;  // bytes
  // The system refused to lock more than `locked` of `wanted` bytes; once at most. Must not call
  // the pool; no lock is held.
  void (*lock_refused)(uint64_t locked, uint64_t wanted);
};

// Bytes, but for counts; parts may be a moment apart.
struct HostUsage {
  uint64_t chunks;
  uint64_t reserved;   // address space
  uint64_t committed;  // what may be touched
  uint64_t live;       // handed out
  uint64_t idle;       // freed, with pages that may be resident
  uint64_t released;   // pages of idle extents that went back to the system, summed up
  uint64_t locked;
  uint64_t refused;  // to be locked, which the system refused
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
  HostExtent* older;  // among those whose pages may be resident
  HostExtent* newer;
  HostChunk* chunk;
  uint32_t first, count;  // pages
  Touched touched;        // the others read as zero: never touched, or given back since
  uint64_t freed_at_ns;   // of the largest part whose pages may be resident
};

class HostPool {
 public:
  void init(const HostPolicy& policy) {
    policy_ = policy;
    most_idle_.store(policy.most_idle);
  }

  // Pages for `bytes` (a multiple of kPage) at a multiple of `alignment` (a power of two, at least
  // kPage); nullptr when the system has none. *zero: they have to be zero (in); they are (out).
  void* take(uint64_t bytes, uint64_t alignment, bool* zero);
  // The same where the system has no room for all: only the first `backed` bytes (a multiple of
  // kPage) are there. The rest must never be touched, and the block comes back whole.
  void* take_backed(uint64_t bytes, uint64_t backed);
  // How many bytes from there on are, of a block of take_backed(); else UINT64_MAX. No lock.
  uint64_t backed_from(const void* memory) const;
  // What take() gave, or a part of it; false: it is not the pool's.
  bool give_back(void* memory, uint64_t bytes);
  // Of what take() gave, two parts will come back, each by itself; or two of them as one. False,
  // and nothing is noted: there is no memory for what the return of one more takes, or it is of
  // take_backed().
  bool note_split(const void* memory = nullptr);
  void note_merged() { handed_out_.fetch_sub(1, std::memory_order_relaxed); }
  // The contents of `from`, which take() gave, to `to`, which it gave later and is larger: by
  // moving the pages of a chunk of its own, else by copying. `from` may be given back, nothing
  // else. False: `to` is lost, and must never be given back; `from` is as it was.
  bool move(void* from, void* to, uint64_t bytes);
  // Whether the two lie in one chunk, so that they may be given back as one. No lock.
  bool same_chunk(const void* a, const void* b) const;

  // The pages of extents that were freed `age_ns` ago or earlier go back to the system. Whether
  // more are idle, and will be old enough.
  bool release_idle(uint64_t age_ns);

  // From now on more idle bytes than these go back at once, as by HostPolicy::most_idle.
  void keep_idle(uint64_t most_bytes);
  // The caller keeps so many bytes that it took: as many fewer may be idle here. No lock.
  void count_as_idle(uint64_t bytes) { kept_by_caller_.store(bytes, std::memory_order_relaxed); }
  // What is idle beyond goes back. No lock where nothing is.
  void release_too_much() {
    if (too_much_idle()) release_beyond(may_be_idle());
  }
  // Whether more was given back than may be idle, since the last call. No lock.
  bool was_full() {
    return full_.load(std::memory_order_relaxed) &&
           full_.exchange(false, std::memory_order_relaxed);
  }

  // Calls inside(start, bytes) for each piece of [memory, memory + bytes) that the pool has locked,
  // and outside(start, bytes) for the rest.
  template <typename Inside, typename Outside>
  void for_each_locked(uintptr_t start, uint64_t bytes, Inside inside, Outside outside) const;
  // The program unlocked everything: locks the pool's again.
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
  // A chunk begins at a multiple of 2 MiB, so each such unit of 2^47 bytes of addresses is of one
  // chunk at most: a table of two levels has its number, or 0.
  static constexpr int kUnitBits = 21, kLeafBits = 13, kRootBits = 13;
  using Leaf = std::atomic<uint16_t>[1 << kLeafBits];

  bool name_units(uintptr_t base, uint64_t bytes, uint16_t number);
  bool any_unit_named(uintptr_t base, uint64_t bytes) const;
  void* reserve_unnamed(uint64_t bytes, uint64_t mapped, uint64_t alignment) const;

  // When pages were freed that the system would not take back: they are not offered again.
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
  std::atomic<int> used_{0};                 // of those
  HostChunk* current_ = nullptr;             // the only one with pages that were never handed out
  std::atomic<Leaf*> roots_[1 << kRootBits] = {};
  SizeBins<HostExtent, BinTraits, kLevels> bins_;
  // Records of free extents are made before they are needed, so that what comes back always finds
  // one. A free extent has its chunk's beginning before it, or what is handed out, or what
  // release_idle() has taken out: so there are no more of them than of these.
  HostExtent* spare_records_ = nullptr;
  uint64_t records_ = 0;                 // made, in use or spare
  std::atomic<uint64_t> handed_out_{0};  // extents that will come back, each by itself
  uint64_t taken_out_ = 0;               // by release_idle()
  // Those that the system may take back.
  HostExtent* newest_idle_ = nullptr;
  HostExtent* oldest_idle_ = nullptr;
  std::atomic<uint64_t> releasable_{0};  // bytes of theirs; written with the lock
  std::atomic<uint64_t> most_idle_{UINT64_MAX}, kept_by_caller_{0};
  std::atomic<bool> full_{false};
  HostUsage sums_{};
  bool lock_was_refused_ = false;
  bool refusal_told_ = false;
};

struct HostChunk {
  std::atomic<uintptr_t> base;  // 0: a free place in the table
  std::atomic<uint64_t> bytes;
  // What of it is the process's: less in a block of take_backed(), none once its pages moved away.
  std::atomic<uint64_t> mapped;
  bool own;                      // of one extent that was too large for others
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
