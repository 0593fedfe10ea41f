// SPDX-License-Identifier: Apache-2.0
// What is said of a pooled block, to the program and to other processes: the block, not its chunk.
// `chunk` is the result of ours() or pinned() (memory.h) for the address. If the program holds no
// block there, the error is the driver's for an unknown address. Any thread.
//
// If the pools' memory comes from virtual memory management (order/cuda_source.h), the driver knows
// handles, mappings and access of it that belong to Cistern. The program gets the same answers as
// for memory of cuMemAlloc.
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

// The address, or where the stretch begins or ends in memory with such handles, kNowhere: the
// driver answers for that as for memory of cuMemAlloc.
CUdeviceptr not_in_a_unit(CUdeviceptr address, size_t bytes = 1);

// Not supported for a block in units that no other process can have.
CUresult export_block(alloc::Chunk* chunk, CUipcMemHandle* handle, CUdeviceptr address);

// This process opens a handle of its own: the driver's handle that stands behind it, and true. Of a
// block `in_units` there is none.
bool own_handle(const CUipcMemHandle& handle, CUipcMemHandle* out, bool* in_units);

}  // namespace cistern::shim
