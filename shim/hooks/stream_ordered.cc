// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation, and the driver's memory pools that it takes memory from.
#include "shim/kinds/stream_ordered/stream_ordered.h"

#include "shim/entry/faces.h"
#include "shim/kinds/stream_ordered/pool_calls.h"
#include "shim/order/barrier/debts.h"
#include "shim/order/barrier/host_visible.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/submissions.h"
#include "shim/watch/watch.h"

namespace cistern::shim {
namespace {

constexpr auto kOrdered = alloc::Memory::stream_ordered;

void put_behind_debts(CUstream stream, bool visible) {
  while (any_debts() && order_behind_debts(stream)) note_submission(visible);
}

bool all_is_visible() { return everything_is_visible.load(std::memory_order_relaxed); }

// The driver may serve an allocation with memory that another stream has yet to free. Then it has
// this stream wait for that one (CUDA Programming Guide, "Memory Reuse Policies").
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
