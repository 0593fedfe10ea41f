// SPDX-License-Identifier: Apache-2.0
//
// Functions that stand in nobody's tables (simcuda/unknown.h).
#include <cstdarg>

#include "api/api.h"
#include "simcuda/unknown.h"

using namespace simcuda;

// Each comes in by the door of the known function, as a driver's own code would: a preloaded object
// that hooks that one sees nothing. The trace has both.
extern "C" {

CUresult cuUnknownCopyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream hStream) {
  return call(
      Call::cuUnknownCopyAsync, [&] { return cuMemcpyAsync(dst, src, bytes, hStream); },
      address("dst", dst), address("src", src), in("bytes", bytes), stream(hStream));
}

CUresult cuUnknownStreamCreate(CUstream* made, unsigned flags) {
  return call(
      Call::cuUnknownStreamCreate, [&] { return cuStreamCreate(made, flags); }, in("flags", flags));
}

CUresult cuUnknownCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  return call(
      Call::cuUnknownCtxCreate, [&] { return cuCtxCreate_v2(context, flags, device); },
      in("flags", flags), in("device", device));
}

CUresult cuUnknownBeginCapture(CUstream hStream, CUstreamCaptureMode mode) {
  return call(
      Call::cuUnknownBeginCapture, [&] { return cuStreamBeginCapture_v2(hStream, mode); },
      in("mode", mode), stream(hStream));
}

CUresult cuUnknownArguments(double* sum, int a1, long long a2, short a3, unsigned char a4,
                            long long a5, long long a6, long long a7, double a8, float a9,
                            double a10, double a11, double a12, double a13, double a14, double a15,
                            double a16, float a17, UnknownBox box) {
  const auto number = [](auto value) { return static_cast<double>(value); };
  *sum = number(a1) + number(a2) * 2 + number(a3) * 3 + number(a4) * 4 + number(a5) * 5 +
         number(a6) * 6 + number(a7) * 7 + a8 * 8 + number(a9) * 9 + a10 * 10 + a11 * 11 +
         a12 * 12 + a13 * 13 + a14 * 14 + a15 * 15 + a16 * 16 + number(a17) * 17;
  for (int i = 0; i < 5; ++i) *sum += number(box.words[i]) * (18 + i);
  return CUDA_SUCCESS;
}

CUresult cuUnknownVariadic(double* sum, int count, ...) {
  va_list numbers;
  va_start(numbers, count);
  *sum = 0;
  for (int i = 0; i < count; ++i) *sum += va_arg(numbers, double);
  va_end(numbers);
  return CUDA_SUCCESS;
}

// Three hundred that do nothing, from cuUnknownMany100 on: each answers its own number. They are in
// no table of the simulator's either, so only their exports are found.
// clang-format off
#define MANY_1(number)              \
  CUresult cuUnknownMany##number(); \
  CUresult cuUnknownMany##number() { return static_cast<CUresult>(number); }
#define MANY_10(ten)                                                           \
  MANY_1(ten##0) MANY_1(ten##1) MANY_1(ten##2) MANY_1(ten##3) MANY_1(ten##4)   \
  MANY_1(ten##5) MANY_1(ten##6) MANY_1(ten##7) MANY_1(ten##8) MANY_1(ten##9)
#define MANY_100(n)                                                            \
  MANY_10(n##0) MANY_10(n##1) MANY_10(n##2) MANY_10(n##3) MANY_10(n##4)        \
  MANY_10(n##5) MANY_10(n##6) MANY_10(n##7) MANY_10(n##8) MANY_10(n##9)
MANY_100(1) MANY_100(2) MANY_100(3)
// clang-format on

}  // extern "C"
