// SPDX-License-Identifier: Apache-2.0
// Memory: what comes from the pools (memory.cc), and the other kinds, which stay the driver's.
#include "shim/capture_gate.h"
#include "shim/hooks/ask.h"
#include "shim/scratch.h"

namespace cistern::shim {
namespace {

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

template <typename Kind, typename Function>
CUresult allocate_async(Function* real, CUdeviceptr* out, size_t bytes, CUstream stream) {
  if (!scratch_on() || out == nullptr || bytes == 0) [[likely]] {
    return ask_for_memory(real, out, bytes, stream);
  }
  const ScratchStreamName name = scratch_stream_of<Kind>(stream);
  if (scratch_take(name, bytes, out)) return CUDA_SUCCESS;
  const uint32_t epoch = scratch_epoch();
  const CUresult result = ask_for_memory(real, out, bytes, stream);
  if (result == CUDA_SUCCESS) scratch_allocated(name, *out, bytes, epoch);
  return result;
}

template <typename Function>
CUresult allocate_from_pool(Function* real, CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                            CUstream stream) {
  const CUresult result = ask_for_memory(real, out, bytes, pool, stream);
  if (result == CUDA_SUCCESS && scratch_on()) scratch_forget(*out);
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
  if (!scratch_on()) [[likely]]
    return ask(real, address, stream);
  const ScratchFree free = scratch_free(scratch_stream_of<Kind>(stream), address);
  if (free.answered) return free.code;
  const CUresult result = ask(real, address, stream);
  scratch_freed(free, result);
  return result;
}

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

// --- memory ---

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) { return allocate(dptr, bytesize); }

CUresult cuMemFree_v2(CUdeviceptr dptr) { return cistern::shim::free(dptr); }

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return free_async<Legacy>(driver().cuMemFreeAsync, dptr, hStream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  return free_async<PerThread>(driver().cuMemFreeAsync_ptsz, dptr, hStream);
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) { return memory_info(free, total); }

// --- other kinds of memory ---

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  return ask_for_memory(driver().cuMemAllocPitch_v2, dptr, pPitch, WidthInBytes, Height,
                        ElementSizeBytes);
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  return ask_for_memory(driver().cuMemAllocManaged, dptr, bytesize, flags);
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate_async<Legacy>(driver().cuMemAllocAsync, dptr, bytesize, hStream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate_async<PerThread>(driver().cuMemAllocAsync_ptsz, dptr, bytesize, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  return allocate_from_pool(driver().cuMemAllocFromPoolAsync, dptr, bytesize, pool, hStream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream) {
  return allocate_from_pool(driver().cuMemAllocFromPoolAsync_ptsz, dptr, bytesize, pool, hStream);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  return ask_for_memory(driver().cuMemCreate, handle, size, prop, flags);
}

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* desc) {
  return ask_for_memory(driver().cuArrayCreate_v2, pHandle, desc);
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* desc) {
  return ask_for_memory(driver().cuArray3DCreate_v2, pHandle, desc);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* desc,
                                unsigned int levels) {
  return ask_for_memory(driver().cuMipmappedArrayCreate, pHandle, desc, levels);
}
