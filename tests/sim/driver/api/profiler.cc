// SPDX-License-Identifier: Apache-2.0
//
// Switches for a profiler, of which none is ever there.
#include "api/api.h"

// After the driver's own view of cuda.h.
#include <cudaProfiler.h>

using namespace simcuda;

extern "C" {

CUresult cuProfilerStart(void) {
  return call(Call::cuProfilerStart,
              [] { return in_context([](Context&) { return CUDA_SUCCESS; }); });
}

CUresult cuProfilerStop(void) {
  return call(Call::cuProfilerStop,
              [] { return in_context([](Context&) { return CUDA_SUCCESS; }); });
}

}  // extern "C"
