// SPDX-License-Identifier: Apache-2.0
// What all pools of the process share. Constant-initialised and, until the first block, untouched.
#pragma once

#include "allocator/arena.h"
#include "allocator/index.h"
#include "allocator/reclaim.h"
#include "allocator/slab_pool.h"
#include "allocator/strategy/block_pool.h"

namespace cistern::alloc {

struct Shared {
  Index index;
  Reclaim reclaim;
  Arena<Chunk> chunks;
  SlabArena slabs;               // the default strategy's
  Arena<BlockPool> block_pools;  // the chunk strategies'
  Arena<ChunkMap> chunk_maps;
  BlockPages block_pages;
  std::atomic<int> returning{0};  // threads that are giving chunks back to the driver

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
