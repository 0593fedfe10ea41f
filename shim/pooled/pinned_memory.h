// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory from the pools: what cuMemHostAlloc, cuMemAllocHost and cuMemFreeHost do
// under Cistern (CISTERN_PINNED_POOL). Results are the driver's own, or what it would have
// answered. Any thread.
//
// What the driver has that no pool serves: requests while something captures, of flags that are not
// known, and, unless the limit was set, those beyond it. Only the driver's own free waits for the
// device: a pooled block is handed out again once no work can touch it, and where more than a bound
// waits for that, free chunks go back to the driver, which then does wait.
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

// Questions about an address; the driver is asked about another one (kNowhere, kinds/pointer.h)
// where the program holds nothing.
CUresult pinned_flags(unsigned* flags, void* memory);
CUresult pinned_device_pointer(CUdeviceptr* out, void* memory, unsigned flags);

}  // namespace cistern::shim
