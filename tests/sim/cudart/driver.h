// SPDX-License-Identifier: Apache-2.0
// The driver as the simulated runtime sees it: a table of functions, found the way NVIDIA's runtime
// finds them (dlopen of libcuda.so.1, one dlsym, then queries), because that way is what the
// preloaded object has to catch. Any thread may call; the table never changes once loaded.
#pragma once

#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>

#include "tests/sim/cudart/driver_calls.h"

namespace simcudart {

// NVIDIA's runtime asks for the first form of this one, which cudaTypedefs.h leaves out.
using PFN_cuDevicePrimaryCtxReset_v7000 = PFN_cuDevicePrimaryCtxReset_v11000;

struct StreamCalls {
#define SIMCUDART_MEMBER(name, version, per_thread_version) PFN_##name##_v##version name##_;
  SIMCUDART_STREAM_CALLS(SIMCUDART_MEMBER)
#undef SIMCUDART_MEMBER
};

struct Driver {
#define SIMCUDART_MEMBER(name, version) PFN_##name##_v##version name##_;
  SIMCUDART_CALLS(SIMCUDART_MEMBER)
#undef SIMCUDART_MEMBER
  StreamCalls legacy;      // stream 0 is the legacy default stream
  StreamCalls per_thread;  // stream 0 is the calling thread's own
  CUresult (*make_primary)(CUcontext* context, CUdevice device);  // of the driver's own table
};

// The functions, after cuInit. Null if there is no driver or it lacks one of them.
const Driver* driver();

// What cuInit said; CUDA_ERROR_NOT_FOUND if there is no usable driver. Meaningful after driver().
CUresult driver_status();

// A function that the driver's library exports beside CUDA's; null if it does not.
void* find_in_driver(const char* symbol);

}  // namespace simcudart
