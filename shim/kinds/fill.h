// SPDX-License-Identifier: Apache-2.0
// The fill of memory that comes from no pool of ours (FLAGS_init_allocated_mem). The pools fill
// their own blocks (allocator/chunk/fill.h, CudaSource::fill). Call the other functions only if
// fill_on() is true. None changes a result of the program. Any thread.
#pragma once

#include "shim/cuda_api.h"
#include "shim/kinds/stream_ordered/memory_pools.h"
#include "shim/process/settings.h"

namespace cistern::shim {

inline bool fill_on() { return active() && policy().fill_byte() >= 0; }
inline unsigned char fill_byte() { return static_cast<unsigned char>(policy().fill_byte()); }

// Linear memory that the driver just gave the calling thread: fills it and waits for that, since
// any stream may use the memory next.
void fill_linear(CUdeviceptr address, size_t bytes);

// Stream-ordered memory: filled in the order of the stream the request named, so nothing waits.
// `memset`: the function for the request's meaning of stream 0.
using Memset = CUresult(CUDAAPI*)(CUdeviceptr, unsigned char, size_t, CUstream);
void fill_ordered(Memset memset, CUdeviceptr address, size_t bytes, CUstream stream,
                  const PoolHome& home);

// Memory of a kind that is not filled was handed out in the current context.
void note_unfilled();

}  // namespace cistern::shim
