// SPDX-License-Identifier: Apache-2.0
//
// Driver functions of the simulator's own, which no toolkit declares: what a driver newer than all
// of Cistern's tables would export. Each does what a known function does. Found like any other.
// Any thread.
#pragma once

#include <cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

// As cuMemcpyAsync, cuStreamCreate, cuCtxCreate_v2 and cuStreamBeginCapture_v2.
CUresult cuUnknownCopyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
CUresult cuUnknownStreamCreate(CUstream* stream, unsigned flags);
CUresult cuUnknownCtxCreate(CUcontext* context, unsigned flags, CUdevice device);
CUresult cuUnknownBeginCapture(CUstream stream, CUstreamCaptureMode mode);

// Parameters in every register that has one, and on the stack.
struct UnknownBox {
  long long words[5];
};
// *sum: each of the others times its number, from 1 on. Those of the box are the last.
CUresult cuUnknownArguments(double* sum, int a1, long long a2, short a3, unsigned char a4,
                            long long a5, long long a6, long long a7, double a8, float a9,
                            double a10, double a11, double a12, double a13, double a14, double a15,
                            double a16, float a17, struct UnknownBox box);
// *sum: of `count` doubles.
CUresult cuUnknownVariadic(double* sum, int count, ...);

// There are also cuUnknownMany100 to cuUnknownMany399, without parameters, each of which returns
// its number.

#ifdef __cplusplus
}
#endif
