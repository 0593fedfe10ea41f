// SPDX-License-Identifier: Apache-2.0
// For programs that report every answer of the driver: each call is printed with its code.
#pragma once

#include <cuda.h>

#include <cstdio>

#define SAY(call) say(#call, (call))

inline CUresult say(const char* call, CUresult code) {
  std::printf("%s: %d\n", call, code);
  return code;
}

inline constexpr size_t kMiB = size_t{1} << 20;

// The device's primary context, current to the calling thread.
inline CUcontext use_device(CUdevice device) {
  CUcontext context = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS) {
    std::printf("no context on device %d\n", device);
  }
  return context;
}

// The current context's device says how much memory is free.
inline size_t free_memory() {
  size_t free = 0, total = 0;
  const CUresult code = cuMemGetInfo(&free, &total);
  if (code != CUDA_SUCCESS) say("cuMemGetInfo", code);
  return free;
}

// What a pool makes cheap: after whatever went before, it should be so again.
inline void allocate_and_free(int rounds, size_t bytes) {
  int failures = 0;
  for (int i = 0; i < rounds; ++i) {
    CUdeviceptr block = 0;
    if (cuMemAlloc(&block, bytes) != CUDA_SUCCESS) ++failures;
    if (cuMemFree(block) != CUDA_SUCCESS) ++failures;
    if (cuCtxSynchronize() != CUDA_SUCCESS) ++failures;
  }
  std::printf("%d rounds of %zu bytes: %d failures\n", rounds, bytes, failures);
}
