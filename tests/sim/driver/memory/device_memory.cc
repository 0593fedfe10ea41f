// SPDX-License-Identifier: Apache-2.0
#include "memory/device_memory.h"

#include "exec/context.h"
#include "memory/device.h"
#include "memory/host_memory.h"
#include "memory/pool.h"

namespace simcuda {

CUresult allocate_device(Context& context, size_t bytes, CUdeviceptr* address) {
  if (bytes == 0 || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device& device = context.device();
  const CUdeviceptr base = device.allocate({.bytes = bytes,
                                            .kind = MemoryKind::kDevice,
                                            .device = device.ordinal(),
                                            .context = &context});
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = base;
  return CUDA_SUCCESS;
}

CUresult free_device(CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  const auto found = find_allocation(address);
  if (!found || found->base != address) return CUDA_ERROR_INVALID_VALUE;
  if (found->kind == MemoryKind::kManaged) {
    wait_for_context(*found->context);
    return free_host(address, MemoryKind::kManaged);
  }
  Device* device = device_of(address);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wait_for_context(*found->context);
  const auto freed = device->release(address);
  if (!freed) return CUDA_ERROR_INVALID_VALUE;  // another thread was first
  if (freed->kind == MemoryKind::kPool) left_pool(freed->pool, freed->bytes);
  return CUDA_SUCCESS;
}

}  // namespace simcuda
