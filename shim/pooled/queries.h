// SPDX-License-Identifier: Apache-2.0
// Queries about a pooled block, by the program and by other processes. Results describe the block,
// not its chunk. `chunk` is the result of ours() or pinned() (memory.h) for the address. If the
// program holds no block there, the error is the driver's for an unknown address. Any thread.
//
// If the pools' memory comes from virtual memory management (order/cuda_source.h), its handles,
// mappings and access rights belong to Cistern. The program gets the same results as for memory of
// cuMemAlloc.
//
// Another process may open a block (cuIpcGetMemHandle). For a whole block the driver's handle is
// enough. For a block inside a chunk, or in units, the program gets a token (ipc/token.h), and this
// process answers processes that open it. From then on the block is quarantined at its free
// (ContextPool::mark_exported); no further one is exported once an eighth of the device is in
// quarantine.
#pragma once

#include "allocator/chunk/chunk.h"
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

// kNowhere if the range begins or ends in the pools' virtual memory, else `address`. With the
// result as its argument, a driver call about handles fails as it does for memory of cuMemAlloc.
CUdeviceptr not_in_a_unit(CUdeviceptr address, size_t bytes = 1);

// cuIpcGetMemHandle. Fails with "not supported" for a block in units that cannot be shared with
// other processes.
CUresult export_block(alloc::Chunk* chunk, CUipcMemHandle* handle, CUdeviceptr address);

// Whether the handle is a token that this process made. If so, *out is the driver's handle of the
// chunk, or the token itself if the program no longer holds the block. For a block in units
// *in_units is true, and *out has no meaning.
bool own_handle(const CUipcMemHandle& handle, CUipcMemHandle* out, bool* in_units);

}  // namespace cistern::shim
