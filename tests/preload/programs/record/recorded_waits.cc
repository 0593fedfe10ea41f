// SPDX-License-Identifier: Apache-2.0
// What a program did before it waits for long is on record.
#include <cuda.h>
#include <unistd.h>

#include <cstdio>

int main() {
  CUcontext context = nullptr;
  CUdeviceptr block = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&block, 4096) != CUDA_SUCCESS) {
    return 1;
  }
  std::puts("waits");
  std::fflush(stdout);
  pause();
}
