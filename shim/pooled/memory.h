// SPDX-License-Identifier: Apache-2.0
// Memory from the pools: the work of cuMemAlloc and cuMemFree under Cistern; and for page-locked
// host memory (CISTERN_PINNED_POOL) that of cuMemHostAlloc, cuMemAllocHost and cuMemFreeHost.
// Results are the driver's own, or those that it would have returned. Any thread.
//
// The driver serves all other requests. For pinned memory these are those with unknown flags, and
// those for which the pools have nothing clean during a capture, while much memory waits for work,
// or beyond the limit unless it was set. Apart from CISTERN_FREE_SYNC a free of pinned memory does
// not wait until much memory waits for work. Then it waits for the oldest, at most a second, and
// free chunks go back to the driver, which waits as without Cistern.
#pragma once

#include <cstddef>

#include "allocator/base/source.h"
#include "allocator/chunk/chunk.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

// The context whose pool serves this request of the calling thread; nullptr: the request is the
// driver's (no context, one without a pool, or arguments that the driver refuses).
Context* serving_context(const CUdeviceptr* out, size_t bytes);

// `context` is what serving_context() answered for the request. Where phases alone are watched,
// they learn of it here, and so of a free().
CUresult allocate(Context& context, CUdeviceptr* out, size_t bytes);
// The same out of line, for the hook where somebody watches (watch/watch.h): allocate() has one
// caller, the hook's own way, and becomes part of it.
CUresult allocate_watched(Context& context, CUdeviceptr* out, size_t bytes);

// Whether the address lies in a chunk of the pools, and in which. Waits, 2 s at most, while that
// chunk is on its way back to the driver.
bool ours(CUdeviceptr address, alloc::Chunk** chunk);

// `chunk` is what ours() found for the address.
CUresult free(alloc::Chunk* chunk, CUdeviceptr address);
CUresult free_watched(alloc::Chunk* chunk, CUdeviceptr address);  // as allocate_watched()
// The same for cuMemFreeAsync, where no capture forbids the call: the caller has asked. `in_driver`
// makes that call, for a block that no pool takes back.
CUresult free_ordered(alloc::Chunk* chunk, CUdeviceptr address,
                      const alloc::OrderedFree& in_driver);

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
