// SPDX-License-Identifier: Apache-2.0
// Variables of the program that live on the device: found in its images, and copied to and from.
// Compiled twice, as streams.cc is and for its reason.

#include <cuda_runtime_api.h>

#include "tests/sim/cudart/module.h"
#include "tests/sim/cudart/on_stream.h"
#include "tests/sim/cudart/state.h"

using namespace simcudart;

namespace {

// The stretch of a variable that is copied; a copy may not leave the variable.
cudaError_t stretch(const void* symbol, size_t offset, size_t bytes, CUdeviceptr* out) {
  cudaError_t status = bind_context();
  CUdeviceptr start = 0;
  size_t size = 0;
  if (status == cudaSuccess) status = find_variable(symbol, &start, &size);
  if (status != cudaSuccess) return status;
  if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
  *out = start + offset;
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost) {
    return remember(cudaErrorInvalidMemcpyDirection);
  }
  CUdeviceptr to = 0;
  if (const cudaError_t status = stretch(symbol, offset, bytes, &to); status != cudaSuccess) {
    return remember(status);
  }
  return cudaMemcpy(reinterpret_cast<void*>(to), from, bytes, kind);
}

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes,
                                    size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost) {
    return remember(cudaErrorInvalidMemcpyDirection);
  }
  CUdeviceptr to = 0;
  if (const cudaError_t status = stretch(symbol, offset, bytes, &to); status != cudaSuccess) {
    return remember(status);
  }
  return cudaMemcpyAsync(reinterpret_cast<void*>(to), from, bytes, kind, stream);
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset,
                                 cudaMemcpyKind kind) {
  if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice) {
    return remember(cudaErrorInvalidMemcpyDirection);
  }
  CUdeviceptr from = 0;
  if (const cudaError_t status = stretch(symbol, offset, bytes, &from); status != cudaSuccess) {
    return remember(status);
  }
  return cudaMemcpy(to, reinterpret_cast<void*>(from), bytes, kind);
}
