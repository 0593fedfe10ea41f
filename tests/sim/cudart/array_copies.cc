// SPDX-License-Identifier: Apache-2.0
// Copies of boxes, to and from arrays and linear memory; memory of a stream from a pool; where
// managed memory should be. Compiled twice, as streams.cc is and for its reason.

#include <cuda_runtime_api.h>

#include "tests/sim/cudart/array_shape.h"
#include "tests/sim/cudart/on_stream.h"
#include "tests/sim/cudart/state.h"

using namespace simcudart;

namespace {

CUarray as_driver(cudaArray_const_t array) {
  return reinterpret_cast<CUarray>(const_cast<cudaArray_t>(array));
}

CUDA_MEMCPY2D to_array(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch,
                       size_t width, size_t height) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = device_address(from);
  copy.srcPitch = pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = as_driver(to);
  copy.dstXInBytes = x;
  copy.dstY = y;
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

CUDA_MEMCPY2D from_array(void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y,
                         size_t width, size_t height) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = as_driver(from);
  copy.srcXInBytes = x;
  copy.srcY = y;
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.dstDevice = device_address(to);
  copy.dstPitch = pitch;
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

// Extents and positions count elements where an array takes part, and bytes otherwise.
size_t element_bytes(const Driver& d, cudaArray_t array) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  if (d.cuArray3DGetDescriptor_(&shape, as_driver(array)) != CUDA_SUCCESS) return 0;
  return static_cast<size_t>(channels_of({shape.Format, shape.NumChannels}).x) / 8 *
         shape.NumChannels;
}

CUresult box(const Driver& d, const cudaMemcpy3DParms& p, CUDA_MEMCPY3D* copy) {
  const cudaArray_t array = p.srcArray != nullptr ? p.srcArray : p.dstArray;
  const size_t unit = array == nullptr ? 1 : element_bytes(d, array);
  if (unit == 0) return CUDA_ERROR_INVALID_HANDLE;
  *copy = {};
  copy->srcMemoryType = p.srcArray != nullptr ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED;
  copy->srcArray = as_driver(p.srcArray);
  copy->srcDevice = device_address(p.srcPtr.ptr);
  copy->srcPitch = p.srcPtr.pitch;
  copy->srcHeight = p.srcPtr.ysize;
  copy->srcXInBytes = p.srcPos.x * (p.srcArray != nullptr ? unit : 1);
  copy->srcY = p.srcPos.y;
  copy->srcZ = p.srcPos.z;
  copy->dstMemoryType = p.dstArray != nullptr ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED;
  copy->dstArray = as_driver(p.dstArray);
  copy->dstDevice = device_address(p.dstPtr.ptr);
  copy->dstPitch = p.dstPtr.pitch;
  copy->dstHeight = p.dstPtr.ysize;
  copy->dstXInBytes = p.dstPos.x * (p.dstArray != nullptr ? unit : 1);
  copy->dstY = p.dstPos.y;
  copy->dstZ = p.dstPos.z;
  copy->WidthInBytes = p.extent.width * unit;
  copy->Height = p.extent.height;
  copy->Depth = p.extent.depth;
  return CUDA_SUCCESS;
}

}  // namespace

cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch,
                                size_t width, size_t height, cudaMemcpyKind) {
  const CUDA_MEMCPY2D copy = to_array(to, x, y, from, pitch, width, height);
  return on_stream([&](const StreamCalls& s) { return s.cuMemcpy2DUnaligned_(&copy); });
}

cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from,
                                     size_t pitch, size_t width, size_t height, cudaMemcpyKind,
                                     cudaStream_t stream) {
  const CUDA_MEMCPY2D copy = to_array(to, x, y, from, pitch, width, height);
  return on_stream([&](const StreamCalls& s) { return s.cuMemcpy2DAsync_(&copy, stream); });
}

cudaError_t cudaMemcpy2DFromArray(void* to, size_t pitch, cudaArray_const_t from, size_t x,
                                  size_t y, size_t width, size_t height, cudaMemcpyKind) {
  const CUDA_MEMCPY2D copy = from_array(to, pitch, from, x, y, width, height);
  return on_stream([&](const StreamCalls& s) { return s.cuMemcpy2DUnaligned_(&copy); });
}

cudaError_t cudaMemcpy2DFromArrayAsync(void* to, size_t pitch, cudaArray_const_t from, size_t x,
                                       size_t y, size_t width, size_t height, cudaMemcpyKind,
                                       cudaStream_t stream) {
  const CUDA_MEMCPY2D copy = from_array(to, pitch, from, x, y, width, height);
  return on_stream([&](const StreamCalls& s) { return s.cuMemcpy2DAsync_(&copy, stream); });
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* parameters) {
  if (parameters == nullptr) return remember(cudaErrorInvalidValue);
  return in_context([&](const Driver& d) {
    CUDA_MEMCPY3D copy;
    const CUresult result = box(d, *parameters, &copy);
    return result != CUDA_SUCCESS ? result : stream_calls(d).cuMemcpy3D_(&copy);
  });
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* parameters, cudaStream_t stream) {
  if (parameters == nullptr) return remember(cudaErrorInvalidValue);
  return in_context([&](const Driver& d) {
    CUDA_MEMCPY3D copy;
    const CUresult result = box(d, *parameters, &copy);
    return result != CUDA_SUCCESS ? result : stream_calls(d).cuMemcpy3DAsync_(&copy, stream);
  });
}

cudaError_t cudaMallocFromPoolAsync(void** out, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  if (out == nullptr) return remember(cudaErrorInvalidValue);
  return on_stream([&](const StreamCalls& s) {
    CUdeviceptr address = 0;
    const CUresult result =
        bytes == 0 ? CUDA_SUCCESS : s.cuMemAllocFromPoolAsync_(&address, bytes, pool, stream);
    if (result == CUDA_SUCCESS) *out = reinterpret_cast<void*>(address);
    return result;
  });
}

static_assert(sizeof(cudaMemLocation) == sizeof(CUmemLocation));

cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, cudaMemLocation location,
                                 unsigned flags, cudaStream_t stream) {
  const CUmemLocation where = driver_location(location);
  return on_stream([&](const StreamCalls& s) {
    return s.cuMemPrefetchAsync_(device_address(pointer), bytes, where, flags, stream);
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream) {
  return on_stream([&](const StreamCalls& s) { return s.cuGraphUpload_(graph, stream); });
}
