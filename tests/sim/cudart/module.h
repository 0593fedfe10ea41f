// SPDX-License-Identifier: Apache-2.0
// Kernels and variables of the program: registered by nvcc's host code before main, loaded into the
// driver at their first use, as with lazy loading. Any thread may call.
#pragma once

#include <driver_types.h>

#include "tests/sim/cudart/driver.h"

namespace simcudart {

// The driver's kernel behind a host stub; loads its image if need be. Wants a context. A handle
// that was accepted stands for itself. cudaErrorInvalidDeviceFunction for an unknown stub, else
// what the driver said.
cudaError_t find_kernel(const void* host_stub, CUkernel* out);

// From now on the program may pass this handle in place of a host stub.
void accept_kernel(CUkernel handle);

// Where a variable is in the current context, and its size. Wants a context.
// cudaErrorInvalidSymbol for an unknown one, else what the driver said.
cudaError_t find_variable(const void* host_variable, CUdeviceptr* out, size_t* bytes);

}  // namespace simcudart
