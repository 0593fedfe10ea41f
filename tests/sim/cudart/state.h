// SPDX-License-Identifier: Apache-2.0
// What the simulated runtime keeps between calls: per thread its device and last error, per device
// the primary context, retained at first use. Every API function ends in remember(), which keeps
// cudaGetLastError true. Any thread may call.
#pragma once

#include <driver_types.h>

#include "tests/sim/cudart/driver.h"

namespace simcudart {

// Records a failure for this thread's cudaGetLastError and hands it back.
cudaError_t remember(cudaError_t status);

// The recorded failure, which stays until take_last_error().
cudaError_t last_error();
cudaError_t take_last_error();

// The runtime's codes are the driver's with the same meaning and number.
inline cudaError_t as_runtime(CUresult result) { return static_cast<cudaError_t>(result); }

// Driver loaded and initialised, no context needed.
cudaError_t ready();

// A context is current on this thread: the one the program set itself, else the primary context of
// this thread's device.
cudaError_t bind_context();

int current_device();
cudaError_t set_device(int device);

// A device's primary context; the calling thread's own is current again afterwards.
cudaError_t primary_of(int device, CUcontext* context);

// Destroys the device's primary context; every thread binds anew at its next call.
cudaError_t reset_device();

// Runs a driver call, given as CUresult(const Driver&), with a context and records its failure.
template <typename Work>
cudaError_t in_context(Work work) {
  cudaError_t status = bind_context();
  if (status == cudaSuccess) status = as_runtime(work(*driver()));
  return remember(status);
}

// The same for calls that need no context.
template <typename Work>
cudaError_t without_context(Work work) {
  cudaError_t status = ready();
  if (status == cudaSuccess) status = as_runtime(work(*driver()));
  return remember(status);
}

inline CUdeviceptr device_address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

inline CUmemLocation driver_location(const cudaMemLocation& location) {
  CUmemLocation out{};
  out.type = static_cast<CUmemLocationType>(location.type);
  out.id = location.id;
  return out;
}

}  // namespace simcudart
