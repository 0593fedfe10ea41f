// SPDX-License-Identifier: Apache-2.0
// Answers to queries of a pooled block: they describe the block, not its chunk. `chunk` is the
// result of ours() (pooled/memory.h) or pinned() (pooled/pinned_memory.h) for the address. If the
// program holds no block there, the error is the driver's for an unknown address. Any thread.
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
