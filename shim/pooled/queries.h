// SPDX-License-Identifier: Apache-2.0
// What the program is told of a block of the pools: the block, not the chunk it lies in. `chunk` is
// what ours() (pooled/memory.h) or pinned() (pooled/pinned_memory.h) found for the address. Where
// the program holds no block, the error is the driver's for an unknown address. Any thread.
#pragma once

#include "allocator/context_pool.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

// An address that cannot be an allocation: nothing is ever mapped in the second page. The driver is
// asked about it in place of an address that the program does not hold.
inline constexpr CUdeviceptr kNowhere = 0x1000;

// cuMemGetAddressRange: the block's start and requested bytes; either pointer may be null.
// `pool` is that of the chunk.
CUresult block_range(alloc::ContextPool& pool, alloc::Chunk* chunk, CUdeviceptr* base, size_t* size,
                     CUdeviceptr address);

}  // namespace cistern::shim
