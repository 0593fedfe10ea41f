// SPDX-License-Identifier: Apache-2.0
// The shared state of all pools of the process: the chunk layer's part, and the bookkeeping of
// every strategy. Constant-initialised and, until the first block, untouched.
#pragma once

#include "allocator/chunk/index.h"
#include "allocator/chunk_pools/chunk_pools.h"
#include "allocator/on_demand/slab.h"

namespace cistern::alloc {

struct Shared : SharedChunks {
  SlabArena slabs;     // the default strategy's
  BlockArenas blocks;  // the chunk strategies'

  void reset_after_fork() {
    SharedChunks::reset_after_fork();
    slabs.reset_after_fork();
    blocks.reset_after_fork();
  }
};

}  // namespace cistern::alloc
