// SPDX-License-Identifier: Apache-2.0
// What a program did is on record a second later, though it makes no call any more.
// It lives through that second by the test clock.
#include <cuda.h>
#include <unistd.h>

#include <cstdio>

#include "../test_clock.h"

int main() {
  test_clock::stop();
  CUcontext context = nullptr;
  CUdeviceptr block = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&block, 4096) != CUDA_SUCCESS) {
    return 1;
  }
  test_clock::live_through(/*ms=*/1000, /*steps=*/10);
  std::puts("waits");
  std::fflush(stdout);
  pause();
}
