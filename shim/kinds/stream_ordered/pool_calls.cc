// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/stream_ordered/pool_calls.h"

#include <algorithm>
#include <optional>

#include "shim/kinds/charges.h"
#include "shim/kinds/fill.h"
#include "shim/kinds/stream_ordered/kept_pools.h"
#include "shim/kinds/stream_ordered/memory_pools.h"
#include "shim/kinds/stream_ordered/scratch.h"
#include "shim/order/ask.h"
#include "shim/order/device.h"

namespace cistern::shim {

namespace {

CUresult destroy_kept(CUmemoryPool pool) {
  if (!keeps_pools()) return ask(driver().cuMemPoolDestroy, pool);
  TakenPool taken(pool);
  const CUresult result = ask(driver().cuMemPoolDestroy, pool);
  if (result == CUDA_SUCCESS) taken.is_gone();
  return result;
}

// The home is forgotten before the call: behind it another thread's pool may have the handle.
CUresult destroy(CUmemoryPool pool) {
  if (!charging() && !fill_on()) return destroy_kept(pool);
  const std::optional<PoolHome> home = forget_home(pool);
  const CUresult result = destroy_kept(pool);
  if (result != CUDA_SUCCESS && home) remember_home(pool, *home);
  return result;
}

}  // namespace

CUresult create_pool(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const CUresult result = ask(driver().cuMemPoolCreate, pool, properties);
  if (result != CUDA_SUCCESS) return result;
  if (charging() || fill_on()) memory_pool_created(*pool, *properties);
  if (keeps_pools()) kept_pool_created(*pool, *properties);
  return result;
}

// If the pool is the current one of its device, the device's default pool becomes current (cuda.h,
// cuMemPoolDestroy).
CUresult destroy_pool(CUmemoryPool pool) {
  const CUdevice device = scratch_on() ? scratch_device_of(pool) : kNoDevice;
  const CUresult result = destroy(pool);
  if (result != CUDA_SUCCESS) return result;
  if (device != kNoDevice) scratch_pool_changed(device);
  return result;
}

CUresult set_current_pool(CUdevice device, CUmemoryPool pool) {
  const CUresult result = ask(driver().cuDeviceSetMemPool, device, pool);
  if (result == CUDA_SUCCESS && scratch_on()) scratch_pool_changed(device);
  return result;
}

CUresult set_current_pool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  const CUresult result = ask(driver().cuMemSetMemPool, location, type, pool);
  if (result == CUDA_SUCCESS && scratch_on() && location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
    scratch_pool_changed(location->id);
  }
  return result;
}

CUresult trim_pool(CUmemoryPool pool, size_t bytes_to_keep) {
  if (scratch_on()) scratch_empty_pool(pool);
  return ask(driver().cuMemPoolTrimTo, pool, bytes_to_keep);
}

CUresult pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  const CUresult result = ask(driver().cuMemPoolGetAttribute, pool, attribute, value);
  if (result == CUDA_SUCCESS && scratch_on() && attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT) {
    auto* used = static_cast<cuuint64_t*>(value);
    *used -= std::min<cuuint64_t>(*used, scratch_cached_in(pool));
  }
  if (result == CUDA_SUCCESS && keeps_pools()) tell_without_kept(pool, attribute, value);
  return result;
}

CUresult set_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  const auto set = driver().cuMemPoolSetAttribute;
  if (!keeps_pools() || value == nullptr) return ask(set, pool, attribute, value);
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) return reset_used_high(pool, value);
  if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) return ask(set, pool, attribute, value);
  TakenPool taken(pool);
  const CUresult result = ask(set, pool, attribute, value);
  if (result == CUDA_SUCCESS) taken.is_the_programs();
  return result;
}

CUresult export_pointer(CUmemPoolPtrExportData* out, CUdeviceptr address) {
  if (scratch_on()) scratch_exported(address);
  return ask(driver().cuMemPoolExportPointer, out, address);
}

}  // namespace cistern::shim
