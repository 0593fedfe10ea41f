// SPDX-License-Identifier: Apache-2.0
// The program's calls about the driver's memory pools. They must not show memory that the scratch
// cache keeps: it is released or left out of the answer. Nor memory that the pool keeps because of
// CISTERN_MEMPOOL_THRESHOLD (kept_pools.h). The place of a pool's memory is recorded
// (memory_pools.h). Any thread.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

CUresult create_pool(CUmemoryPool* pool, const CUmemPoolProps* properties);
CUresult destroy_pool(CUmemoryPool pool);
CUresult set_current_pool(CUdevice device, CUmemoryPool pool);
CUresult set_current_pool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool);
CUresult trim_pool(CUmemoryPool pool, size_t bytes_to_keep);
CUresult pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value);
CUresult set_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value);
CUresult export_pointer(CUmemPoolPtrExportData* out, CUdeviceptr address);

}  // namespace cistern::shim
