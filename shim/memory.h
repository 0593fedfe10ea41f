// SPDX-License-Identifier: Apache-2.0
// Device memory as the program asks for it: what cuMemAlloc, cuMemFree and the queries about them
// do under Cistern. Results are the driver's own, or what it would have said. Any thread.
#pragma once

#include "allocator/chunk.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

CUresult allocate(CUdeviceptr* out, size_t bytes);
CUresult free(CUdeviceptr address);
// The same for cuMemFreeAsync, which no capture but its stream's own forbids.
CUresult free_ordered(alloc::Chunk* chunk, CUdeviceptr address);
// Returns to the driver what the pools of the current device keep; false if that is nothing.
bool return_idle_memory();
// Whether the pools know this address, and the chunk that contains it.
bool ours(CUdeviceptr address, alloc::Chunk** chunk);
CUresult memory_info(size_t* free, size_t* total);
CUresult address_range(CUdeviceptr* base, size_t* size, CUdeviceptr address);
CUresult export_handle(CUipcMemHandle* handle, CUdeviceptr address);

}  // namespace cistern::shim
