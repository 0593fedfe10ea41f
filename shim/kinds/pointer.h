// SPDX-License-Identifier: Apache-2.0
// What the driver is asked, and told, about an address (cuda.h: cuPointerGetAttribute and the calls
// around it). The driver answers for its whole allocation; where that differs from the block the
// program holds, the block is told: one size everywhere, the requested one. BUFFER_ID and
// MEMORY_BLOCK_ID stay the driver's: a program that caches registrations by them has registered the
// whole allocation. What lies in units (order/cuda_units.h) is told as memory of cuMemAlloc, but
// for what another process or device could do with it: that stays the truth.
//
// An address of ours that the program does not hold is answered as the driver answers for an
// address it has never seen. What makes a block known outside the process is noted when it
// succeeded (allocator/context_pool.h, mark_exported). Any thread.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

CUresult pointer_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr address);
CUresult pointer_attributes(unsigned count, CUpointer_attribute* attributes, void** data,
                            CUdeviceptr address);
CUresult set_pointer_attribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr address);
CUresult range_handle(void* handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
                      unsigned long long flags);

}  // namespace cistern::shim
