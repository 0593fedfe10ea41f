// SPDX-License-Identifier: Apache-2.0
// Everything that is ordered by a stream. NVIDIA's headers rename these functions (_ptsz, _ptds)
// when the default stream is each thread's own, and so this file is compiled twice: as it is, and
// through streams_per_thread.cc with that rule. Only stream_calls() of on_stream.h differs.

#include <cuda_runtime_api.h>

#include "tests/sim/cudart/module.h"
#include "tests/sim/cudart/on_stream.h"
#include "tests/sim/cudart/state.h"

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define __cudaLaunchKernel __cudaLaunchKernel_ptsz
#endif

using namespace simcudart;

namespace {

bool launchable(dim3 grid, dim3 block) {
  const size_t threads = size_t{block.x} * block.y * block.z;
  return threads > 0 && threads <= 1024 && grid.x > 0 && grid.y > 0 && grid.z > 0;
}

CUDA_MEMCPY2D plane(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                    size_t height) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = device_address(from);
  copy.srcPitch = from_pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.dstDevice = device_address(to);
  copy.dstPitch = to_pitch;
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

}  // namespace

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (static_cast<unsigned>(kind) > cudaMemcpyDefault) {
    return remember(cudaErrorInvalidMemcpyDirection);
  }
  return on_stream([&](const StreamCalls& s) {
    if (bytes == 0) return CUDA_SUCCESS;
    switch (kind) {
      case cudaMemcpyHostToDevice:
        return s.cuMemcpyHtoD_(device_address(to), from, bytes);
      case cudaMemcpyDeviceToHost:
        return s.cuMemcpyDtoH_(to, device_address(from), bytes);
      case cudaMemcpyDeviceToDevice:
        return s.cuMemcpyDtoD_(device_address(to), device_address(from), bytes);
      default:
        return s.cuMemcpy_(device_address(to), device_address(from), bytes);
    }
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (static_cast<unsigned>(kind) > cudaMemcpyDefault) {
    return remember(cudaErrorInvalidMemcpyDirection);
  }
  return on_stream([&](const StreamCalls& s) {
    if (bytes == 0) return CUDA_SUCCESS;
    switch (kind) {
      case cudaMemcpyHostToDevice:
        return s.cuMemcpyHtoDAsync_(device_address(to), from, bytes, stream);
      case cudaMemcpyDeviceToHost:
        return s.cuMemcpyDtoHAsync_(to, device_address(from), bytes, stream);
      case cudaMemcpyDeviceToDevice:
        return s.cuMemcpyDtoDAsync_(device_address(to), device_address(from), bytes, stream);
      default:
        return s.cuMemcpyAsync_(device_address(to), device_address(from), bytes, stream);
    }
  });
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  const CUDA_MEMCPY2D copy = plane(to, to_pitch, from, from_pitch, width, height);
  return on_stream([&](const StreamCalls& s) { return s.cuMemcpy2DUnaligned_(&copy); });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  const CUDA_MEMCPY2D copy = plane(to, to_pitch, from, from_pitch, width, height);
  return on_stream([&](const StreamCalls& s) { return s.cuMemcpy2DAsync_(&copy, stream); });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  const auto byte = static_cast<unsigned char>(value);
  return on_stream(
      [&](const StreamCalls& s) { return s.cuMemsetD8_(device_address(to), byte, bytes); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const auto byte = static_cast<unsigned char>(value);
  return on_stream([&](const StreamCalls& s) {
    return s.cuMemsetD8Async_(device_address(to), byte, bytes, stream);
  });
}

cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  const auto byte = static_cast<unsigned char>(value);
  return on_stream([&](const StreamCalls& s) {
    return s.cuMemsetD2D8_(device_address(to), pitch, byte, width, height);
  });
}

cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  const auto byte = static_cast<unsigned char>(value);
  return on_stream([&](const StreamCalls& s) {
    return s.cuMemsetD2D8Async_(device_address(to), pitch, byte, width, height, stream);
  });
}

cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t stream) {
  if (out == nullptr) return remember(cudaErrorInvalidValue);
  return on_stream([&](const StreamCalls& s) {
    CUdeviceptr address = 0;
    const CUresult result = bytes == 0 ? CUDA_SUCCESS : s.cuMemAllocAsync_(&address, bytes, stream);
    if (result == CUDA_SUCCESS) *out = reinterpret_cast<void*>(address);
    return result;
  });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return on_stream([&](const StreamCalls& s) {
    return pointer == nullptr ? CUDA_SUCCESS : s.cuMemFreeAsync_(device_address(pointer), stream);
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return on_stream([&](const StreamCalls& s) { return s.cuStreamSynchronize_(stream); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return on_stream([&](const StreamCalls& s) { return s.cuStreamQuery_(stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return on_stream(
      [&](const StreamCalls& s) { return s.cuStreamWaitEvent_(stream, event, flags); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return on_stream([&](const StreamCalls& s) { return s.cuEventRecord_(event, stream); });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const auto driver_mode = static_cast<CUstreamCaptureMode>(mode);
  return on_stream(
      [&](const StreamCalls& s) { return s.cuStreamBeginCapture_(stream, driver_mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return on_stream([&](const StreamCalls& s) { return s.cuStreamEndCapture_(stream, graph); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return on_stream([&](const StreamCalls& s) {
    CUstreamCaptureStatus driver_status{};
    const CUresult result = s.cuStreamIsCapturing_(stream, &driver_status);
    if (result == CUDA_SUCCESS) *status = static_cast<cudaStreamCaptureStatus>(driver_status);
    return result;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return on_stream([&](const StreamCalls& s) { return s.cuGraphLaunch_(graph, stream); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return on_stream(
      [&](const StreamCalls& s) { return s.cuLaunchHostFunc_(stream, function, data); });
}

extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                                          size_t shared_bytes, cudaStream_t stream) {
  if (kernel == nullptr) return remember(cudaErrorInvalidDeviceFunction);
  if (!launchable(grid, block)) return remember(cudaErrorInvalidConfiguration);
  return on_stream([&](const StreamCalls& s) {
    return s.cuLaunchKernel_(reinterpret_cast<CUfunction>(kernel), grid.x, grid.y, grid.z, block.x,
                             block.y, block.z, static_cast<unsigned>(shared_bytes), stream, args,
                             nullptr);
  });
}

cudaError_t cudaLaunchKernel(const void* host_stub, dim3 grid, dim3 block, void** args,
                             size_t shared_bytes, cudaStream_t stream) {
  cudaError_t status = bind_context();
  CUkernel kernel = nullptr;
  if (status == cudaSuccess) status = find_kernel(host_stub, &kernel);
  if (status != cudaSuccess) return remember(status);
  return __cudaLaunchKernel(kernel, grid, block, args, shared_bytes, stream);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* found) {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  constexpr unsigned long long kRule = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
#else
  constexpr unsigned long long kRule = CU_GET_PROC_ADDRESS_DEFAULT;
#endif
  return without_context([&](const Driver& d) {
    CUdriverProcAddressQueryResult driver_found{};
    const CUresult result = d.cuGetProcAddress_(symbol, function, static_cast<int>(version),
                                                flags != 0 ? flags : kRule, &driver_found);
    if (found != nullptr) *found = static_cast<cudaDriverEntryPointQueryResult>(driver_found);
    // An unknown name is an answer, not a failure.
    return result == CUDA_ERROR_NOT_FOUND ? CUDA_SUCCESS : result;
  });
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* found) {
  return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION, flags, found);
}
