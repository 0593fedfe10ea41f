// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management: reserved addresses, physical handles (physical_file.h), mappings and
// access. A handle's memory lives, and stays charged, until its last handle and its last mapping
// are gone; it travels between processes as a file descriptor. No context owns any of it: all
// outlives the contexts, also a reset. Any thread.
#pragma once

#include <cstdint>

#include "base/cuda.h"

namespace simcuda {

// What there is now.
struct VirtualMemory {
  uint64_t handles, mappings, mapped_bytes, reservations, reserved_bytes;
};
VirtualMemory virtual_memory();

CUresult granularity(const CUmemAllocationProp& properties, size_t* bytes);

CUresult reserve_address(size_t bytes, size_t alignment, CUdeviceptr* address);
CUresult free_address(CUdeviceptr address, size_t bytes);

CUresult create_physical(size_t bytes, const CUmemAllocationProp& properties,
                         CUmemGenericAllocationHandle* handle);
CUresult release_physical(CUmemGenericAllocationHandle handle);
CUresult retain_physical(CUdeviceptr address, CUmemGenericAllocationHandle* handle);
CUresult physical_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp* properties);

CUresult map_physical(CUdeviceptr address, size_t bytes, size_t offset,
                      CUmemGenericAllocationHandle handle);
CUresult unmap_physical(CUdeviceptr address, size_t bytes);
CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* descriptions,
                    size_t count);
CUresult get_access(CUdeviceptr address, int device, unsigned long long* flags);

CUresult export_physical(CUmemGenericAllocationHandle handle, int* file);
CUresult import_physical(int file, CUmemGenericAllocationHandle* handle);

}  // namespace simcuda
