// SPDX-License-Identifier: Apache-2.0
// Physical memory that the program creates for itself (cuMemCreate). It is charged
// (kinds/charges.h) and counts as live for observers (watch/watch.h) until its last handle is
// released and its last mapping undone, in any order. Imported handles belong to their exporter.
// Mappings of cuMemMapArrayAsync into sparse arrays are not tracked. Any thread.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

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
