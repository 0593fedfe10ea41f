// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory from the pools: the work of cuMemHostAlloc, cuMemAllocHost and
// cuMemFreeHost under Cistern (CISTERN_PINNED_POOL). Results are the driver's own, or those that it
// would have returned. Any thread.
//
// The driver serves all other requests: those with unknown flags, and those for which the pools
// have nothing clean during a capture, while much memory waits for work, or beyond the limit unless
// it was set. Apart from CISTERN_FREE_SYNC a free does not wait until much memory waits for work.
// Then it waits for the oldest, at most a second, and free chunks go back to the driver, which
// waits as without Cistern.
#pragma once

#include <cstddef>

#include "allocator/chunk/chunk.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

CUresult allocate_pinned(void** out, size_t bytes, unsigned flags);
CUresult free_pinned(void* memory);

// Whether the address lies in a chunk of pinned memory, and in which. Waits, 2 s at most, while
// that chunk is on its way back to the driver.
bool pinned(const void* memory, alloc::Chunk** chunk);
// Whether the program holds a block of that chunk there.
bool holds_pinned(alloc::Chunk* chunk, const void* memory);

// cuMemGetAddressRange of a block in this chunk.
CUresult pinned_range(alloc::Chunk* chunk, CUdeviceptr* base, size_t* size, CUdeviceptr address);

// Questions about an address; the driver is asked about another one (kNowhere, queries.h)
// where the program holds nothing.
CUresult pinned_flags(unsigned* flags, void* memory);
CUresult pinned_device_pointer(CUdeviceptr* out, void* memory, unsigned flags);

}  // namespace cistern::shim
