// SPDX-License-Identifier: Apache-2.0
//
// Memory pools and stream-ordered allocation. A pool takes memory from its device, hands it out,
// and keeps what is freed: the next synchronisation of a stream, event or context gives back what
// is more than the pool's release threshold (CUDA Programming Guide, Stream-Ordered Memory
// Allocator, "Physical Page Caching Behavior" and "Synchronization API Actions"), and so does a
// query that finds everything done. What a pool keeps is not free for cuMemAlloc, for other pools
// nor for physical handles, also when they run short: the guide knows no other way than
// cuMemPoolTrimTo. Any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/cuda.h"
#include "exec/stream.h"
#include "memory/allocation.h"

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
CUresult trim_pool(CUmemoryPool pool, uint64_t keep_bytes);

// A null pool means the device's current one.
CUresult allocate_async(Call call, CUmemoryPool pool, const StreamRef& stream, size_t bytes,
                        CUdeviceptr* address);
CUresult free_async(Call call, const StreamRef& stream, CUdeviceptr address);

// Memory of a pool, freed by cuMemFree when its context has been waited for.
CUresult free_pool_memory(const Allocation& found);

// The host has waited for something: frees that are over by that serve everybody from now on, and
// pools give back what they keep beyond their thresholds.
void pools_after_wait();

// SIMCUDA_FREE_ASYNC=late: what was freed in stream order comes back to the device now.
void finish_late_frees(Context& context);

// Sharing with other processes. The descriptor stands for the pool, the data for one allocation of
// it; an imported pool allocates nothing itself.
CUresult export_pool(CUmemoryPool pool, int* file);
CUresult import_pool(int file, CUmemoryPool* pool);
CUresult export_pointer(CUdeviceptr address, CUmemPoolPtrExportData* data);
CUresult import_pointer(CUmemoryPool pool, const CUmemPoolPtrExportData& data,
                        CUdeviceptr* address);

}  // namespace simcuda
