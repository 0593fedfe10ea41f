// SPDX-License-Identifier: Apache-2.0
// NVIDIA's own runtime: each of its look-ups of a hooked function gets the hook.
// One call of NVIDIA's own runtime. It is linked with the toolkit's runtime, static and shared: on
// the simulated driver that looks every function up and then refuses the driver, which is no
// NVIDIA driver; the look-ups are what the test wants to see.

#include <cuda_runtime_api.h>

#include <cstdio>

int main() {
  void* block = nullptr;
  const cudaError_t status = cudaMalloc(&block, 1000);
  std::printf("cudaMalloc: %s\n", cudaGetErrorName(status));
  return 0;
}
