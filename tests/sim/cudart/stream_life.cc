// SPDX-License-Identifier: Apache-2.0
// Streams, events and graphs as objects: what does not depend on the rule for the default stream.

#include <cuda_runtime_api.h>

#include "tests/sim/cudart/state.h"

using namespace simcudart;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  return in_context([&](const Driver& d) { return d.cuStreamCreate_(out, flags); });
}

cudaError_t cudaStreamCreate(cudaStream_t* out) {
  return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int priority) {
  return in_context(
      [&](const Driver& d) { return d.cuStreamCreateWithPriority_(out, flags, priority); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return in_context([&](const Driver& d) { return d.cuStreamDestroy_(stream); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  return in_context([&](const Driver& d) { return d.cuEventCreate_(out, flags); });
}

cudaError_t cudaEventCreate(cudaEvent_t* out) {
  return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return in_context([&](const Driver& d) { return d.cuEventDestroy_(event); });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return in_context([&](const Driver& d) { return d.cuEventQuery_(event); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return in_context([&](const Driver& d) { return d.cuEventSynchronize_(event); });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return in_context([&](const Driver& d) { return d.cuEventElapsedTime_(ms, start, end); });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return in_context([&](const Driver& d) {
    auto driver_mode = static_cast<CUstreamCaptureMode>(*mode);
    const CUresult result = d.cuThreadExchangeStreamCaptureMode_(&driver_mode);
    *mode = static_cast<cudaStreamCaptureMode>(driver_mode);
    return result;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph,
                                          unsigned long long flags) {
  return in_context(
      [&](const Driver& d) { return d.cuGraphInstantiateWithFlags_(out, graph, flags); });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph,
                                 unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(out, graph, flags);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return in_context([&](const Driver& d) { return d.cuGraphDestroy_(graph); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return in_context([&](const Driver& d) { return d.cuGraphExecDestroy_(graph); });
}
