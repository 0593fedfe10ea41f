// SPDX-License-Identifier: Apache-2.0
// What can be asked about a stream and its capture, and the less usual work on one. Compiled twice,
// as streams.cc is and for its reason.

#include <cuda_runtime_api.h>

#include "tests/sim/cudart/module.h"
#include "tests/sim/cudart/on_stream.h"
#include "tests/sim/cudart/state.h"

using namespace simcudart;

static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));

namespace {

// The launch as the driver wants it. The attributes are the same in both.
CUlaunchConfig driver_config(const cudaLaunchConfig_t& config) {
  CUlaunchConfig launch{};
  launch.gridDimX = config.gridDim.x;
  launch.gridDimY = config.gridDim.y;
  launch.gridDimZ = config.gridDim.z;
  launch.blockDimX = config.blockDim.x;
  launch.blockDimY = config.blockDim.y;
  launch.blockDimZ = config.blockDim.z;
  launch.sharedMemBytes = static_cast<unsigned>(config.dynamicSmemBytes);
  launch.hStream = config.stream;
  launch.attrs = reinterpret_cast<CUlaunchAttribute*>(config.attrs);
  launch.numAttrs = config.numAttrs;
  return launch;
}

cudaError_t kernel_in_context(const void* host_stub, CUkernel* kernel) {
  const cudaError_t status = bind_context();
  return status == cudaSuccess ? find_kernel(host_stub, kernel) : status;
}

}  // namespace

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return on_stream([&](const StreamCalls& s) { return s.cuStreamGetId_(stream, id); });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return on_stream([&](const StreamCalls& s) { return s.cuStreamGetFlags_(stream, flags); });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return on_stream([&](const StreamCalls& s) { return s.cuStreamGetPriority_(stream, priority); });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned flags) {
  return on_stream([&](const StreamCalls& s) {
    return s.cuStreamAddCallback_(stream, reinterpret_cast<CUstreamCallback>(callback), data,
                                  flags);
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  return on_stream([&](const StreamCalls& s) {
    CUstreamCaptureStatus driver_status{};
    cuuint64_t driver_id = 0;
    const CUresult result = s.cuStreamGetCaptureInfo_(
        stream, status == nullptr ? nullptr : &driver_status, &driver_id, graph, dependencies,
        reinterpret_cast<const CUgraphEdgeData**>(edges), count);
    if (result != CUDA_SUCCESS) return result;
    *status = static_cast<cudaStreamCaptureStatus>(driver_status);
    if (id != nullptr && driver_status == CU_STREAM_CAPTURE_STATUS_ACTIVE) *id = driver_id;
    return result;
  });
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                const cudaGraphEdgeData* edges, size_t count,
                                                unsigned flags) {
  return on_stream([&](const StreamCalls& s) {
    return s.cuStreamUpdateCaptureDependencies_(
        stream, dependencies, reinterpret_cast<const CUgraphEdgeData*>(edges), count, flags);
  });
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t* dependencies,
                                          const cudaGraphEdgeData* edges, size_t count,
                                          cudaStreamCaptureMode mode) {
  return on_stream([&](const StreamCalls& s) {
    return s.cuStreamBeginCaptureToGraph_(stream, graph, dependencies,
                                          reinterpret_cast<const CUgraphEdgeData*>(edges), count,
                                          static_cast<CUstreamCaptureMode>(mode));
  });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return on_stream(
      [&](const StreamCalls& s) { return s.cuEventRecordWithFlags_(event, stream, flags); });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host_stub,
                                void** args) {
  if (config == nullptr) return remember(cudaErrorInvalidValue);
  CUkernel kernel = nullptr;
  const cudaError_t status = kernel_in_context(host_stub, &kernel);
  if (status != cudaSuccess) return remember(status);
  const CUlaunchConfig launch = driver_config(*config);
  return on_stream([&](const StreamCalls& s) {
    return s.cuLaunchKernelEx_(&launch, reinterpret_cast<CUfunction>(kernel), args, nullptr);
  });
}

cudaError_t cudaLaunchCooperativeKernel(const void* host_stub, dim3 grid, dim3 block, void** args,
                                        size_t shared_bytes, cudaStream_t stream) {
  CUkernel kernel = nullptr;
  const cudaError_t status = kernel_in_context(host_stub, &kernel);
  if (status != cudaSuccess) return remember(status);
  return on_stream([&](const StreamCalls& s) {
    return s.cuLaunchCooperativeKernel_(reinterpret_cast<CUfunction>(kernel), grid.x, grid.y,
                                        grid.z, block.x, block.y, block.z,
                                        static_cast<unsigned>(shared_bytes), stream, args);
  });
}
