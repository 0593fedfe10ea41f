// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory and the driver's pools it comes from. What the program holds is charged: a
// block from its allocation to the call that frees it. What a pool of the driver keeps beyond that
// (its release threshold, frees the stream has not reached) is the driver's to use again, also
// when memory is short, so no request is refused for it.
#include "shim/capture_gate.h"
#include "shim/charges.h"
#include "shim/hooks/ask.h"
#include "shim/memory_pools.h"

namespace cistern::shim {
namespace {

// The pool current to the stream's device is always one of that device.
PoolHome home_of_stream(CUstream stream) {
  const bool of_thread = stream == nullptr || stream == CU_STREAM_LEGACY ||
                         stream == CU_STREAM_PER_THREAD || driver().cuStreamGetCtx == nullptr;
  CUcontext context = nullptr;
  const bool known = !of_thread && driver().cuStreamGetCtx(stream, &context) == CUDA_SUCCESS;
  const CUdevice device = known ? device_of(context) : kNoDevice;
  return {device != kNoDevice ? device : current_device(), Held::stream_ordered};
}

// Memory allocated inside a capture is the graph's. Asked only while there is a capture.
template <typename Kind>
bool graphs_own(CUstream stream) {
  bool capturing = false;
  return capture_gate().capturing() &&
         (captures<Kind>(stream, &capturing) != CUDA_SUCCESS || capturing);
}

template <typename Kind, typename Home, typename Allocate>
CUresult allocate_async(CUdeviceptr* out, size_t bytes, CUstream stream, Home home,
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
CUresult allocate_from_current(Function* real, CUdeviceptr* out, size_t bytes, CUstream stream) {
  return allocate_async<Kind>(
      out, bytes, stream, [&] { return home_of_stream(stream); },
      [&] { return ask(real, out, bytes, stream); });
}

template <typename Kind, typename Function>
CUresult allocate_from(Function* real, CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                       CUstream stream) {
  return allocate_async<Kind>(
      out, bytes, stream, [&] { return home_of(pool); },
      [&] { return ask(real, out, bytes, pool, stream); });
}

// cuda.h names no kind of memory that cuMemFreeAsync would refuse, except on a stream that
// captures: there only memory of the graph may be freed. A pool block freed this way waits for all
// earlier work, which is more than the stream's; the driver must never see it.
template <typename Kind, typename Function>
CUresult free_async(Function* real, CUdeviceptr address, CUstream stream) {
  alloc::Chunk* chunk;
  if (!ours(address, &chunk)) {
    return refunding(address, [&] { return ask(real, address, stream); });
  }
  bool capturing;
  const CUresult result = captures<Kind>(stream, &capturing);
  if (result != CUDA_SUCCESS) return result;
  return capturing ? CUDA_ERROR_INVALID_VALUE : free_ordered(chunk, address);
}

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate_from_current<Legacy>(driver().cuMemAllocAsync, dptr, bytesize, hStream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate_from_current<PerThread>(driver().cuMemAllocAsync_ptsz, dptr, bytesize, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  return allocate_from<Legacy>(driver().cuMemAllocFromPoolAsync, dptr, bytesize, pool, hStream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream) {
  return allocate_from<PerThread>(driver().cuMemAllocFromPoolAsync_ptsz, dptr, bytesize, pool,
                                  hStream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return free_async<Legacy>(driver().cuMemFreeAsync, dptr, hStream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  return free_async<PerThread>(driver().cuMemFreeAsync_ptsz, dptr, hStream);
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  const CUresult result = ask(driver().cuMemPoolCreate, pool, poolProps);
  if (result == CUDA_SUCCESS && charging()) memory_pool_created(*pool, *poolProps);
  return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const CUresult result = ask(driver().cuMemPoolDestroy, pool);
  if (result == CUDA_SUCCESS && charging()) memory_pool_gone(pool);
  return result;
}
