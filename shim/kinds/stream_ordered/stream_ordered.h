// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory and the driver's pools it comes from. A request is served by the scratch
// cache or by the driver. The driver's blocks are charged from their allocation to the call that
// really frees them, be that the program's or the scratch cache's. Memory that a pool of the driver
// keeps beyond that (its release threshold, frees that the stream has not reached) is not charged:
// the driver can use it again, also when memory is short. The program's queries must not show
// memory that the scratch cache keeps. Any thread.
#pragma once

#include "shim/cuda_api.h"
#include "shim/order/ask.h"

namespace cistern::shim {

// `Kind` is what the call means by stream 0 (order/ask.h), `real` the driver's function for that.
using AllocateAsync = CUresult(CUDAAPI*)(CUdeviceptr*, size_t, CUstream);
using AllocateFromPool = CUresult(CUDAAPI*)(CUdeviceptr*, size_t, CUmemoryPool, CUstream);
using FreeAsync = CUresult(CUDAAPI*)(CUdeviceptr, CUstream);

template <typename Kind>
CUresult allocate_async(AllocateAsync real, CUdeviceptr* out, size_t bytes, CUstream stream);
template <typename Kind>
CUresult allocate_from_pool(AllocateFromPool real, CUdeviceptr* out, size_t bytes,
                            CUmemoryPool pool, CUstream stream);
template <typename Kind>
CUresult free_async(FreeAsync real, CUdeviceptr address, CUstream stream);

}  // namespace cistern::shim
