// SPDX-License-Identifier: Apache-2.0
// Device memory from the pools: what cuMemAlloc and cuMemFree do under Cistern. Results are the
// driver's own, or what it would have said. Any thread.
#pragma once

#include <cstddef>

#include "allocator/chunk/chunk.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

// The context whose pool serves this request of the calling thread; nullptr: the request is the
// driver's (no context, one without a pool, or arguments that the driver refuses).
Context* serving_context(const CUdeviceptr* out, size_t bytes);

CUresult allocate(Context& context, CUdeviceptr* out, size_t bytes);

// Whether the pools know this address, and the chunk that contains it.
bool ours(CUdeviceptr address, alloc::Chunk** chunk);

// `chunk` is what ours() found for the address.
CUresult free(alloc::Chunk* chunk, CUdeviceptr address);
// The same for cuMemFreeAsync, which no capture but its stream's own forbids.
CUresult free_ordered(alloc::Chunk* chunk, CUdeviceptr address);

}  // namespace cistern::shim
