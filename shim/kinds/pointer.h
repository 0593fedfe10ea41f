// SPDX-License-Identifier: Apache-2.0
// Queries and attributes of an address (cuda.h: cuPointerGetAttribute and the calls around it). The
// driver answers for its whole allocation. If that differs from the program's block, the answer is
// about the block: one size everywhere, the requested one. BUFFER_ID and MEMORY_BLOCK_ID stay the
// driver's: a program that caches registrations by them has registered the whole allocation. Memory
// in units (order/cuda_units.h) is reported as memory of cuMemAlloc. But the answers on what
// another process or device can do with it stay the driver's.
//
// For an address of ours that the program does not hold, the answer is the driver's for an unknown
// address. A call that makes a block known outside the process is recorded when it succeeded
// (allocator/context_pool.h, mark_exported). Any thread.
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
