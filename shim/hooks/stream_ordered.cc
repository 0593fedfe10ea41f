// SPDX-License-Identifier: Apache-2.0
// Pools of stream-ordered memory and synchronisations of one stream: the program's own, except that
// what the scratch cache keeps of a pool must not show.
#include <algorithm>

#include "shim/hooks/ask.h"
#include "shim/scratch.h"

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  const CUresult result = ask(driver().cuDeviceSetMemPool, dev, pool);
  if (result == CUDA_SUCCESS && scratch_on()) scratch_pool_changed(dev);
  return result;
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  const CUresult result = ask(driver().cuMemSetMemPool, location, type, pool);
  if (result == CUDA_SUCCESS && scratch_on() && location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
    scratch_pool_changed(location->id);
  }
  return result;
}

// The device of a current pool falls back to its default one.
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const CUdevice device = scratch_on() ? scratch_device_of(pool) : -1;
  const CUresult result = ask(driver().cuMemPoolDestroy, pool);
  if (result == CUDA_SUCCESS && device >= 0) scratch_pool_changed(device);
  return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  if (scratch_on()) scratch_empty_pool(pool);
  return ask(driver().cuMemPoolTrimTo, pool, minBytesToKeep);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  const CUresult result = ask(driver().cuMemPoolGetAttribute, pool, attr, value);
  if (result == CUDA_SUCCESS && scratch_on() && attr == CU_MEMPOOL_ATTR_USED_MEM_CURRENT) {
    auto* used = static_cast<cuuint64_t*>(value);
    *used -= std::min<cuuint64_t>(*used, scratch_cached_in(pool));
  }
  return result;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData, CUdeviceptr ptr) {
  if (scratch_on()) scratch_exported(ptr);
  return ask(driver().cuMemPoolExportPointer, shareData, ptr);
}
