// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory and the driver's pools it comes from. A request is served by the scratch
// cache or by the driver. What the driver gave is charged: a block from its allocation to the call
// that really frees it, be that the program's or the scratch cache's. What a pool of the driver
// keeps beyond that (its release threshold, frees the stream has not reached) is the driver's to
// use again, also when memory is short, so no request is refused for it. What the scratch cache
// keeps of a pool must not show.
#include <algorithm>
#include <type_traits>

#include "shim/hooks/ask.h"
#include "shim/kinds/charges.h"
#include "shim/kinds/fill.h"
#include "shim/kinds/memory_pools.h"
#include "shim/kinds/scratch.h"
#include "shim/order/capture_gate.h"

namespace cistern::shim {
namespace {

// The pool current to the stream's device is always one of that device.
PoolHome home_of_stream(CUstream stream) {
  const bool of_thread = stream == nullptr || stream == CU_STREAM_LEGACY ||
                         stream == CU_STREAM_PER_THREAD || driver().cuStreamGetCtx == nullptr;
  CUcontext context = nullptr;
  const bool known = !of_thread && driver().cuStreamGetCtx(stream, &context) == CUDA_SUCCESS;
  const CUdevice device = known ? device_of(context) : kNoDevice;
  return {device != kNoDevice ? device : current_device(), MemoryKind::stream_ordered};
}

// Memory allocated inside a capture is the graph's. Asked only while there is a capture.
template <typename Kind>
bool graphs_own(CUstream stream) {
  bool capturing = false;
  return capture_gate().capturing() &&
         (captures<Kind>(stream, &capturing) != CUDA_SUCCESS || capturing);
}

// The stream as the scratch cache knows it; a capture's memory is the graph's. Out of line, to
// leave the hooks a straight way to the driver.
template <typename Kind>
[[gnu::noinline]] ScratchStreamName scratch_stream_of(CUstream stream) {
  bool capturing = false;
  if (capture_gate().capturing()) {
    const CUresult result = captures<Kind>(stream, &capturing);
    if (result != CUDA_SUCCESS) return {0, stream, result};
  }
  return capturing ? ScratchStreamName{0, stream, CUDA_SUCCESS}
                   : scratch_stream(Kind::name(stream));
}

template <typename Kind>
Memset memset_of() {
  return std::is_same_v<Kind, Legacy> ? driver().cuMemsetD8Async : driver().cuMemsetD8Async_ptsz;
}

// From a pool on another device the stream may have no access to the block, which would kill its
// context.
template <typename Kind>
void fill_from_pool(CUdeviceptr address, size_t bytes, CUmemoryPool pool, CUstream stream) {
  const PoolHome home = home_of(pool);
  if (home.kind != MemoryKind::stream_ordered || home.device != home_of_stream(stream).device) {
    return note_unfilled();
  }
  fill_ordered(memset_of<Kind>(), address, bytes, stream, home);
}

template <typename Kind, typename Home, typename Allocate>
CUresult allocate_charged(CUdeviceptr* out, size_t bytes, CUstream stream, Home home,
                          Allocate allocate_it) {
  if (!charging() || out == nullptr || bytes == 0 || graphs_own<Kind>(stream)) {
    return ask_for_memory(allocate_it);
  }
  const PoolHome where = home();
  Charge charge(where.kind, where.device, bytes);
  if (charge.refused()) {
    bool capturing;
    const CUresult result = captures<Kind>(stream, &capturing);  // what it says of a bad stream
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = charge.ask(allocate_it);
  if (result == CUDA_SUCCESS) charge.keep(*out, /*context=*/nullptr);
  return result;
}

template <typename Kind, typename Function>
CUresult serve_async(Function* real, CUdeviceptr* out, size_t bytes, CUstream stream) {
  const auto ask_driver = [=] {
    return allocate_charged<Kind>(
        out, bytes, stream, [=] { return home_of_stream(stream); },
        [=] { return ask(real, out, bytes, stream); });
  };
  if (!scratch_on() || out == nullptr || bytes == 0) [[likely]]
    return ask_driver();
  const ScratchStreamName name = scratch_stream_of<Kind>(stream);
  if (scratch_take(name, bytes, out)) return CUDA_SUCCESS;
  const uint32_t epoch = scratch_epoch();
  const CUresult result = ask_driver();
  if (result == CUDA_SUCCESS) scratch_allocated(name, *out, bytes, epoch);
  return result;
}

template <typename Kind, typename Function>
CUresult allocate_async(Function* real, CUdeviceptr* out, size_t bytes, CUstream stream) {
  const CUresult result = serve_async<Kind>(real, out, bytes, stream);
  if (result == CUDA_SUCCESS && fill_on()) [[unlikely]]
    fill_ordered(memset_of<Kind>(), *out, bytes, stream, home_of_stream(stream));
  return result;
}

template <typename Kind, typename Function>
CUresult allocate_from_pool(Function* real, CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                            CUstream stream) {
  const CUresult result = allocate_charged<Kind>(
      out, bytes, stream, [=] { return home_of(pool); },
      [=] { return ask(real, out, bytes, pool, stream); });
  if (result == CUDA_SUCCESS && scratch_on()) scratch_forget(*out);
  if (result == CUDA_SUCCESS && fill_on()) fill_from_pool<Kind>(*out, bytes, pool, stream);
  return result;
}

// cuda.h names no kind of memory that cuMemFreeAsync would refuse, except on a stream that
// captures: there only memory of the graph may be freed. A pool block freed this way waits for all
// earlier work, which is more than the stream's; the driver must never see it.
template <typename Kind>
CUresult free_pooled(alloc::Chunk* chunk, CUdeviceptr address, CUstream stream) {
  bool capturing;
  const CUresult result = captures<Kind>(stream, &capturing);
  if (result != CUDA_SUCCESS) return result;
  return capturing ? CUDA_ERROR_INVALID_VALUE : free_ordered(chunk, address);
}

template <typename Kind, typename Function>
CUresult free_async(Function* real, CUdeviceptr address, CUstream stream) {
  alloc::Chunk* chunk;
  if (ours(address, &chunk)) return free_pooled<Kind>(chunk, address, stream);
  const auto ask_driver = [=] {
    return refunding(address, [=] { return ask(real, address, stream); });
  };
  if (!scratch_on()) [[likely]]
    return ask_driver();
  const ScratchFree free = scratch_free(scratch_stream_of<Kind>(stream), address);
  if (free.answered) return free.code;
  const CUresult result = ask_driver();
  scratch_freed(free, result);
  return result;
}

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

// --- allocation and free ---

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate_async<Legacy>(driver().cuMemAllocAsync, dptr, bytesize, hStream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate_async<PerThread>(driver().cuMemAllocAsync_ptsz, dptr, bytesize, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  return allocate_from_pool<Legacy>(driver().cuMemAllocFromPoolAsync, dptr, bytesize, pool,
                                    hStream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream) {
  return allocate_from_pool<PerThread>(driver().cuMemAllocFromPoolAsync_ptsz, dptr, bytesize, pool,
                                       hStream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return free_async<Legacy>(driver().cuMemFreeAsync, dptr, hStream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  return free_async<PerThread>(driver().cuMemFreeAsync_ptsz, dptr, hStream);
}

// --- pools ---

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  const CUresult result = ask(driver().cuMemPoolCreate, pool, poolProps);
  if (result == CUDA_SUCCESS && (charging() || fill_on())) memory_pool_created(*pool, *poolProps);
  return result;
}

// The device of a current pool falls back to its default one.
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const CUdevice device = scratch_on() ? scratch_device_of(pool) : kNoDevice;
  const CUresult result = ask(driver().cuMemPoolDestroy, pool);
  if (result != CUDA_SUCCESS) return result;
  if (charging() || fill_on()) memory_pool_gone(pool);
  if (device != kNoDevice) scratch_pool_changed(device);
  return result;
}

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
