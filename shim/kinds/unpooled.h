// SPDX-License-Identifier: Apache-2.0
// Memory that no pool serves: linear memory (linear.cc), and physical memory that the program
// creates for itself (physical.cc). The driver serves both. Any thread.
#pragma once

#include <cstddef>

#include "shim/cuda_api.h"
#include "shim/kinds/stream_ordered/memory_pools.h"
#include "shim/process/settings.h"

namespace cistern::shim {

// --- linear memory: of cuMemAlloc without a pooled context, pitched and managed memory. If charges
// are kept, it is charged; with the fill on (FLAGS_init_allocated_mem), it is filled. The pools
// fill their own blocks (allocator/chunk/fill.h, CudaSource::fill).
//
// Call the fill_* functions and note_unfilled() only if fill_on() is true. They cannot fail a call
// of the program.

inline bool fill_on() { return active() && policy().fill_byte() >= 0; }
inline unsigned char fill_byte() { return static_cast<unsigned char>(policy().fill_byte()); }

// Fills linear memory that the driver has just allocated for the calling thread, and waits until it
// is filled, since any stream may use the memory next.
void fill_linear(CUdeviceptr address, size_t bytes);

// Stream-ordered memory: filled in the order of the stream the request named, so nothing waits.
// `memset`: the function for the request's meaning of stream 0.
using Memset = CUresult(CUDAAPI*)(CUdeviceptr, unsigned char, size_t, CUstream);
void fill_ordered(Memset memset, CUdeviceptr address, size_t bytes, CUstream stream,
                  const PoolHome& home);

// To be called when memory of a kind that Cistern cannot fill was handed out in the current
// context.
void note_unfilled();

// cuMemAlloc and cuMemFree of memory outside the pools. free_linear() also frees stream-ordered
// memory.
CUresult allocate_linear(CUdeviceptr* out, size_t bytes);
CUresult free_linear(CUdeviceptr address);

CUresult allocate_pitched(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                          unsigned element_bytes);
CUresult allocate_managed(CUdeviceptr* out, size_t bytes, unsigned flags);

// cuMemGetAddressRange for such an address.
CUresult linear_range(CUdeviceptr* base, size_t* size, CUdeviceptr address);

// --- physical memory that the program creates for itself (cuMemCreate). It is charged
// (kinds/charges.h) and counts as live for observers (watch/watch.h) until its last handle is
// released and its last mapping undone, in any order. Imported handles belong to their exporter.
// Mappings of cuMemMapArrayAsync into sparse arrays are not tracked.

// Whether charges or observers need this. If not, hooks call only the driver. If true, the driver
// has all these functions.
bool following_physical();

CUresult create_physical(CUmemGenericAllocationHandle* handle, size_t size,
                         const CUmemAllocationProp* properties, unsigned long long flags);
CUresult release_physical(CUmemGenericAllocationHandle handle);
CUresult retain_physical(CUmemGenericAllocationHandle* handle, void* address);
CUresult map_physical(CUdeviceptr address, size_t size, size_t offset,
                      CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult unmap_physical(CUdeviceptr address, size_t size);

void reset_physical_after_fork();

}  // namespace cistern::shim
