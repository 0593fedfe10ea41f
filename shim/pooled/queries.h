// SPDX-License-Identifier: Apache-2.0
// Answers to queries of a pooled block: they describe the block, not its chunk. `chunk` is the
// result of ours() (pooled/memory.h) or pinned() (pooled/pinned_memory.h) for the address. If the
// program holds no block there, the error is the driver's for an unknown address. Any thread.
//
// If the pools' memory comes from virtual memory management (order/cuda_units.h), the driver knows
// handles, mappings and access of it that belong to Cistern. The program gets the same answers as
// for memory of cuMemAlloc.
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

// The address, or where the stretch begins or ends in memory with such handles, kNowhere: the
// driver answers for that as for memory of cuMemAlloc.
CUdeviceptr not_in_a_unit(CUdeviceptr address, size_t bytes = 1);

}  // namespace cistern::shim
