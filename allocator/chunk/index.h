// SPDX-License-Identifier: Apache-2.0
// The ownership index: from any device address to the chunk that contains it. Only the index
// decides whether a pointer is ours, never a setting. A two-level radix map of pages of 2 MiB. Each
// page knows the chunk that reaches into it from below, and the chunks that start in it.
//
// find() takes no lock and may be called from any thread; it sees every chunk whose insertion
// happened before the call. insert() and remove() take the index's lock.
//
// One index serves all pools of device memory. It is a part of SharedChunks: the state that the
// chunk layer and every strategy share.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/records.h"
#include "allocator/base/threads.h"
#include "allocator/base/units.h"
#include "allocator/chunk/chunk.h"
#include "allocator/reclaim/idle_release.h"
#include "allocator/reclaim/reclaim.h"

namespace cistern::alloc {

class Index {
 public:
  // The chunk that contains `address`, or nullptr. The role of the chunk may change at any time.
  Chunk* find(uint64_t address) {
    Chunk* chunk = walk(address);
    // A record that was recycled during the walk may cause a false miss: look again under the lock.
    return chunk != nullptr || empty(address) ? chunk : find_locked(address);
  }

  // False when no memory is left for the map itself; nothing is inserted then.
  bool insert(Chunk* chunk);

  void remove(Chunk* chunk);

  // Removes every chunk of `owner` and returns them as a list linked by Chunk::next.
  Chunk* remove_all_of(uint32_t owner);

  void reset_after_fork() { mutex_.reset(); }

 private:
  static constexpr int kPageBits = 21, kLeafBits = 14, kRootBits = 13;  // 48 address bits
  static constexpr uint64_t kPageBytes = uint64_t{1} << kPageBits;

  struct Page {
    std::atomic<Chunk*> cover;   // contains the first byte of this page, starts before it
    std::atomic<Chunk*> starts;  // list, linked by next_start
  };
  struct Leaf {
    Page pages[1 << kLeafBits];
  };

  Page* page(uint64_t address) const {
    const uint64_t root = address >> (kPageBits + kLeafBits);
    if (root >= (1u << kRootBits)) return nullptr;
    Leaf* leaf = roots_[root].load(std::memory_order_acquire);
    return leaf == nullptr ? nullptr
                           : &leaf->pages[(address >> kPageBits) & ((1u << kLeafBits) - 1)];
  }

  bool empty(uint64_t address) const { return page(address) == nullptr; }

  Chunk* walk(uint64_t address) const {
    const Page* p = page(address);
    if (p == nullptr) return nullptr;
    for (Chunk* c = p->starts.load(std::memory_order_acquire); c != nullptr;
         c = c->next_start.load(std::memory_order_acquire)) {
      if (c->contains(address)) return c;
    }
    Chunk* cover = p->cover.load(std::memory_order_acquire);
    return cover != nullptr && cover->contains(address) ? cover : nullptr;
  }

  [[gnu::noinline]] Chunk* find_locked(uint64_t address);
  bool ensure_leaves(uint64_t first, uint64_t last);

  Mutex mutex_;
  std::atomic<Leaf*> roots_[1 << kRootBits] = {};
};

// The sizes of exported blocks. Another process learns the size from the driver, which reports that
// of the chunk. A program that exports one block usually exports more of its size. So from then on
// a request of that size gets a chunk of exactly that size. Any thread, no lock; no size is ever
// forgotten.
class ToldSizes {
 public:
  static constexpr int kMost = 32;

  void note(uint64_t bytes) {
    for (auto& size : sizes_) {
      uint64_t known = 0;
      if (size.compare_exchange_strong(known, bytes) || known == bytes) return;
    }
  }

  // Once kMost sizes are noted, true for every size.
  bool has(uint64_t bytes) const {
    for (const auto& size : sizes_) {
      const uint64_t known = size.load(std::memory_order_relaxed);
      if (known == bytes) return true;
      if (known == 0) [[likely]]
        return false;
    }
    return true;
  }

 private:
  std::atomic<uint64_t> sizes_[kMost] = {};  // 0: free, and so are those behind it
};

// The chunk layer's part of Shared (allocator/any_strategy.h). Constant-initialised and, until the
// first block, untouched. Any thread.
struct SharedChunks {
  Index index;
  Reclaim reclaim;
  IdleRelease idle;  // written before the first pool is made
  Arena<Chunk> chunks;
  LeftUnits left_units;

  ToldSizes told_sizes;

  // Threads that ask the driver for a chunk, or carry one to its pool: no other thread finds that
  // memory yet.
  std::atomic<int> threads_obtaining{0};
  // Threads whose request met a shortage.
  std::atomic<int> threads_short_of_memory{0};
  // The number of reasons why frees have to do more than free (ContextPool::do_extra_work()): one
  // for each thread that is short of memory, and for each pool one for garbage, one for making
  // plans, and one for marks that only frees can make.
  std::atomic<int> free_extra_work{0};
  // Threads that took free memory out of a pool, to release it, to fill it or to move it elsewhere.
  Movers movers;
  // Threads that add up what is free: idle memory stays where it is until they have finished.
  std::atomic<int> threads_counting{0};

  // Waits until the threads that move free memory have finished, for `most_ns` at most: they may
  // wait for work of the device that ends only once the caller goes on.
  void await_moving(uint64_t most_ns = Deadlines::kRelease) { movers.await(most_ns); }

  void reset_after_fork() {
    index.reset_after_fork();
    chunks.reset_after_fork();
    left_units.reset_after_fork();
    reclaim.reset_after_fork();
  }
};

}  // namespace cistern::alloc
