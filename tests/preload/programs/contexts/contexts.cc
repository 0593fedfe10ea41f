// SPDX-License-Identifier: Apache-2.0
// Two devices, two contexts, many contexts, and frees across them.
// Blocks are freed while another context is current, and contexts end with blocks in use. The
// device must be able to free what any context holds.

#include "../driver_codes.h"

namespace {

constexpr size_t kSmall = 1000, kLarge = 3 * kMiB;

void fill_and_read(CUdeviceptr block, size_t bytes, unsigned char value) {
  unsigned char last = 0;
  SAY(cuMemsetD8(block, value, bytes));
  SAY(cuMemcpyDtoH(&last, block + bytes - 1, 1));
  std::printf("holds %d\n", last);
}

void two_devices() {
  CUcontext contexts[2];
  CUdeviceptr small[2], large[2];
  for (int i = 0; i < 2; ++i) {
    contexts[i] = use_device(i);
    SAY(cuMemAlloc(&small[i], kSmall));
    SAY(cuMemAlloc(&large[i], kLarge));
  }
  SAY(cuMemFree(small[0]));
  SAY(cuMemFree(large[0]));
  SAY(cuMemFree(small[0]));
  int device = -1;
  SAY(cuCtxGetDevice(&device));
  std::printf("still on device %d\n", device);
  SAY(cuDevicePrimaryCtxReset(1));
  SAY(cuCtxSetCurrent(contexts[0]));
  SAY(cuMemFree(small[1]));
  SAY(cuMemFree(large[1]));
  SAY(cuMemAlloc(&small[0], kSmall));
  fill_and_read(small[0], kSmall, 1);
  SAY(cuMemFree(small[0]));
}

void two_contexts() {
  CUcontext first = use_device(0), second, popped;
  CUdeviceptr small, large, own;
  SAY(cuCtxCreate(&second, nullptr, 0, 0));
  SAY(cuMemAlloc(&small, kSmall));
  SAY(cuMemAlloc(&large, kLarge));
  SAY(cuCtxPopCurrent(&popped));
  fill_and_read(small, kSmall, 2);
  SAY(cuMemFree(small));
  SAY(cuMemFree(large));
  SAY(cuMemFree(large));
  SAY(cuMemAlloc(&own, kSmall));
  SAY(cuCtxPushCurrent(second));
  SAY(cuMemAlloc(&small, kSmall));
  SAY(cuMemAlloc(&large, kLarge));
  SAY(cuCtxDestroy(second));
  SAY(cuCtxSetCurrent(first));
  SAY(cuMemFree(small));
  SAY(cuMemFree(large));
  fill_and_read(own, kSmall, 3);
  SAY(cuMemFree(own));
}

void many_contexts() {
  CUcontext first = use_device(0);
  int failures = 0;
  for (int i = 0; i < 100; ++i) {
    CUcontext context;
    CUdeviceptr block;
    failures += cuCtxCreate(&context, nullptr, 0, 0) != CUDA_SUCCESS ? 1 : 0;
    failures += cuMemAlloc(&block, kSmall) != CUDA_SUCCESS ? 1 : 0;
    if (i % 2 == 0) failures += cuMemFree(block) != CUDA_SUCCESS ? 1 : 0;
    failures += cuCtxDestroy(context) != CUDA_SUCCESS ? 1 : 0;
  }
  SAY(cuCtxSetCurrent(first));
  std::printf("failures %d\n", failures);
}

}  // namespace

int main() {
  two_devices();
  two_contexts();
  many_contexts();
  allocate_and_free(100, kLarge);
  return 0;
}
