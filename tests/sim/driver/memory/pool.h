// SPDX-License-Identifier: Apache-2.0
//
// Memory pools and stream-ordered allocation. An allocation takes device memory at the call; a
// free gives it back when the stream gets there. Nothing is kept between the two: reserved and
// used are one figure. Any thread.
#pragma once

#include "base/cuda.h"
#include "exec/stream.h"

namespace simcuda {

class Device;

CUmemoryPool default_pool(Device& device);
CUmemoryPool current_pool(Device& device);
CUresult set_current_pool(Device& device, CUmemoryPool pool);

CUresult create_pool(const CUmemPoolProps& properties, CUmemoryPool* pool);
CUresult destroy_pool(CUmemoryPool pool);
CUresult check_pool(CUmemoryPool pool);
CUresult get_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value);
CUresult set_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value);

// A null pool means the device's current one.
CUresult allocate_async(Call call, CUmemoryPool pool, const StreamRef& stream, size_t bytes,
                        CUdeviceptr* address);
CUresult free_async(Call call, const StreamRef& stream, CUdeviceptr address);

// SIMCUDA_FREE_ASYNC=late: what was freed in stream order comes back to the device now.
void finish_late_frees(Context& context);

// A pool's allocation freed by other means: the pool's figures follow.
void left_pool(CUmemoryPool pool, uint64_t bytes);

}  // namespace simcuda
