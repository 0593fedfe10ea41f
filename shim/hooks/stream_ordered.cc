// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation, and the program's calls about the driver's memory pools. Calls about
// pools must not show memory that the scratch cache keeps: such memory is released, or left out of
// the answer. Nor may they show memory that a pool keeps because of CISTERN_MEMPOOL_THRESHOLD
// (memory_pools.h). memory_pools.h also records where a pool's memory lies. Any thread.
#include "shim/kinds/stream_ordered/memory_pools.h"

#include <algorithm>

#include "shim/entry/driver.h"
#include "shim/kinds/charges.h"
#include "shim/kinds/stream_ordered/scratch.h"
#include "shim/kinds/unpooled.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/barrier/work.h"
#include "shim/order/shared.h"
#include "shim/order/submissions.h"
#include "shim/watch/watch.h"

namespace cistern::shim {
namespace {

constexpr auto kOrdered = alloc::Memory::stream_ordered;

void put_behind_debts(CUstream stream, bool visible) {
  while (any_debts() && order_behind_debts(stream)) note_submission(visible);
}

bool all_is_visible() { return everything_is_visible.load(std::memory_order_relaxed); }

// The driver may serve an allocation with memory that another stream is still to free. Then it
// makes this stream wait for the other (CUDA Programming Guide, "Memory Reuse Policies").
template <typename Kind>
bool allocation_is_visible(CUstream stream) {
  return all_is_visible() || may_await_visible_work(Kind::name(stream));
}

template <typename Kind>
CUresult watch_async(AllocateAsync real, CUdeviceptr* out, size_t bytes, CUstream stream) {
  const bool visible = allocation_is_visible<Kind>(stream);
  const SubmissionScope submission(visible);
  put_behind_debts(Kind::name(stream), visible);
  return watch_allocation(kOrdered, out, bytes, Kind::name(stream),
                          [=] { return allocate_async<Kind>(real, out, bytes, stream); });
}

template <typename Kind>
CUresult watch_from_pool(AllocateFromPool real, CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                         CUstream stream) {
  const bool visible = allocation_is_visible<Kind>(stream);
  const SubmissionScope submission(visible);
  put_behind_debts(Kind::name(stream), visible);
  return watch_allocation(kOrdered, out, bytes, Kind::name(stream),
                          [=] { return allocate_from_pool<Kind>(real, out, bytes, pool, stream); });
}

template <typename Kind>
CUresult watch_free_async(FreeAsync real, CUdeviceptr address, CUstream stream) {
  const bool visible = all_is_visible();
  const SubmissionScope submission(visible);
  put_behind_debts(Kind::name(stream), visible);
  return watch_free(kOrdered, address, Kind::name(stream),
                    [=] { return free_async<Kind>(real, address, stream); });
}

// --- calls about pools ---

CUresult destroy_kept(CUmemoryPool pool) {
  if (!keeps_pools()) return ask(driver().cuMemPoolDestroy, pool);
  TakenPool taken(pool);
  const CUresult result = ask(driver().cuMemPoolDestroy, pool);
  if (result == CUDA_SUCCESS) taken.is_gone();
  return result;
}

// Forgets the home before the call: after it another thread's new pool may have the same handle.
CUresult destroy_in_driver(CUmemoryPool pool) {
  if (!charging() && !fill_on()) return destroy_kept(pool);
  const std::optional<PoolHome> home = forget_home(pool);
  const CUresult result = destroy_kept(pool);
  if (result != CUDA_SUCCESS && home) remember_home(pool, *home);
  return result;
}

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
  const CUresult result = destroy_in_driver(pool);
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

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return watch_async<Legacy>(driver().cuMemAllocAsync, dptr, bytesize, hStream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return watch_async<PerThread>(driver().cuMemAllocAsync_ptsz, dptr, bytesize, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  return watch_from_pool<Legacy>(driver().cuMemAllocFromPoolAsync, dptr, bytesize, pool, hStream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream) {
  return watch_from_pool<PerThread>(driver().cuMemAllocFromPoolAsync_ptsz, dptr, bytesize, pool,
                                    hStream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return watch_free_async<Legacy>(driver().cuMemFreeAsync, dptr, hStream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  return watch_free_async<PerThread>(driver().cuMemFreeAsync_ptsz, dptr, hStream);
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  if (poolProps != nullptr && (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
                               poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)) {
    everything_becomes_visible();
  }
  return create_pool(pool, poolProps);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) { return destroy_pool(pool); }

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) { return set_current_pool(dev, pool); }

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  return set_current_pool(location, type, pool);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  return trim_pool(pool, minBytesToKeep);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return pool_attribute(pool, attr, value);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return set_pool_attribute(pool, attr, value);
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData, CUdeviceptr ptr) {
  return export_pointer(shareData, ptr);
}
