// SPDX-License-Identifier: Apache-2.0
// Blocks that another process may open: cuIpcGetMemHandle. For a whole block the driver's handle is
// enough. For a block inside a chunk, or in units, the program gets a token (ipc/token.h), and this
// process answers processes that open it. From then on the block is quarantined at its free
// (ContextPool::mark_exported); no further one is exported once an eighth of the device is in
// quarantine. Any thread.
#pragma once

#include "allocator/chunk/chunk.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

// `chunk` is what ours() (pooled/memory.h) found for the address. Not supported for a block in
// units (order/cuda_units.h) that no other process can have.
CUresult export_block(alloc::Chunk* chunk, CUipcMemHandle* handle, CUdeviceptr address);

// This process opens a handle of its own: the driver's handle that stands behind it, and true. Of a
// block `in_units` there is none.
bool own_handle(const CUipcMemHandle& handle, CUipcMemHandle* out, bool* in_units);

}  // namespace cistern::shim
