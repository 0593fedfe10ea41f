// SPDX-License-Identifier: Apache-2.0
#include "memory/device_memory.h"

#include "exec/context.h"
#include "exec/context_lock.h"
#include "memory/device.h"
#include "memory/host_memory.h"
#include "memory/pool.h"
#include "watch/watcher.h"

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

namespace {

CUresult free_found(const Allocation& found) {
  if (found.kind == MemoryKind::kManaged) {
    const FreeLock lock(*found.context);
    wait_for_context(*found.context);
    return free_host(found.base, MemoryKind::kManaged);
  }
  Device* device = device_of(found.base);
  const bool pooled = found.owner != nullptr;
  if ((device == nullptr && !pooled) || found.ending || found.kind == MemoryKind::kGlobal) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const FreeLock lock(*found.context);
  wait_for_memory_of(*found.context);
  finish_late_frees(*found.context);
  CUresult code = CUDA_SUCCESS;
  if (pooled) {
    code = free_pool_memory(found);
  } else {
    watch_freed(found);
    if (!device->release(found.base)) code = CUDA_ERROR_INVALID_VALUE;  // another thread was first
  }
  pools_after_wait();
  return code;
}

}  // namespace

CUresult free_device(CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  const auto found = find_allocation(address);
  const bool starts_there = found && found->base == address;
  const CUresult code = starts_there ? free_found(*found) : CUDA_ERROR_INVALID_VALUE;
  if (code != CUDA_SUCCESS) watch_free_refused(address);
  return code;
}

}  // namespace simcuda
