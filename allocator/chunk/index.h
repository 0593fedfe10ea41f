// SPDX-License-Identifier: Apache-2.0
// The ownership index: from any device address to the chunk that contains it. It alone decides
// whether a pointer is ours, never a setting. Pages of 2 MiB in a two-level radix map; a page knows
// the chunk that reaches into it from below and the chunks that start in it.
//
// find() takes no lock and may be called from any thread; it sees every chunk whose insertion
// happened before the call. insert() and remove() take the index's lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/mutex.h"
#include "allocator/chunk/chunk.h"

namespace cistern::alloc {

class Index {
 public:
  // The chunk that contains `address`, or nullptr. What it returns may have changed role since.
  Chunk* find(uint64_t address) {
    Chunk* chunk = walk(address);
    // A miss may come from a record recycled under the walk; only the lock can tell.
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

}  // namespace cistern::alloc
