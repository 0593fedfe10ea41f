// SPDX-License-Identifier: Apache-2.0
// What all pools of the process share. Constant-initialised and, until the first block, untouched.
#pragma once

#include "allocator/base/arena.h"
#include "allocator/base/os.h"
#include "allocator/chunk/index.h"
#include "allocator/chunk_pools/block_pool.h"
#include "allocator/on_demand/slab_pool.h"
#include "allocator/reclaim/idle_release.h"
#include "allocator/reclaim/reclaim.h"

namespace cistern::alloc {

// Counts a thread in for a scope.
class CountedIn {
 public:
  explicit CountedIn(std::atomic<int>& threads) : threads_(threads) { threads_.fetch_add(1); }
  ~CountedIn() { threads_.fetch_sub(1); }
  CountedIn(const CountedIn&) = delete;
  CountedIn& operator=(const CountedIn&) = delete;

 private:
  std::atomic<int>& threads_;
};

struct Shared {
  Index index;
  Reclaim reclaim;
  IdleRelease idle;  // written before the first pool is made
  Arena<Chunk> chunks;
  SlabArena slabs;               // the default strategy's
  Arena<BlockPool> block_pools;  // the chunk strategies'
  Arena<ChunkMap> chunk_maps;
  BlockPages block_pages;
  std::atomic<int> obtaining{0};  // threads that ask the driver for a chunk; not counted yet
  std::atomic<int> in_want{0};    // threads that are short of memory
  // Why a free does more than free: threads in want, and one where there is garbage.
  std::atomic<int> errands{0};
  // Threads that took out of a pool what nobody holds, to return it or to fill it; and how often
  // one began to.
  std::atomic<int> returning{0};
  std::atomic<uint64_t> returns{0};
  std::atomic<int> counting{0};  // threads that add up what is free: idle release lets them finish

  // Waits for those that return, but not for ever: the driver makes them wait for the device, whose
  // work may not end before the caller goes on.
  void await_returning(uint64_t most_ns = 2'000'000'000) const {
    os::wait_until([this] { return returning.load() == 0; }, most_ns);
  }

  void reset_after_fork() {
    index.reset_after_fork();
    chunks.reset_after_fork();
    slabs.reset_after_fork();
    block_pools.reset_after_fork();
    chunk_maps.reset_after_fork();
    block_pages.reset_after_fork();
  }
};

}  // namespace cistern::alloc
