// SPDX-License-Identifier: Apache-2.0
// Frees in the destructors of static objects and in an atexit handler, after main has returned.
// The runtime may refuse by then; it must not crash.

#include "../check.h"
#include "../kernels.cuh"

namespace {

struct Holder {
  void* block = nullptr;
  ~Holder() {
    const cudaError_t status = cudaFree(block);
    std::printf("late free accepted or refused as unloading: %d\n",
                status == cudaSuccess || status == cudaErrorCudartUnloading);
  }
};

Holder g_small;
Holder g_large;

}  // namespace

int main() {
  static Holder in_main;
  CHECK(cudaMalloc(&g_small.block, 1000));
  CHECK(cudaMalloc(&g_large.block, size_t{5} << 20));
  CHECK(cudaMalloc(&in_main.block, 70000));
  stamp_block<<<1, 1>>>(static_cast<uint32_t*>(g_large.block), 100, 1);
  CHECK(cudaDeviceSynchronize());
  std::atexit([] { std::printf("at exit\n"); });
  std::printf("main ends\n");
  return 0;
}
