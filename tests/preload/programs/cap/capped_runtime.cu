// SPDX-License-Identifier: Apache-2.0
// A cap is told by the runtime as a device of that size would be.
// Properties, memory info, codes and the last error are as on a small device.

#include <vector>

#include "../check.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;

void show() {
  size_t free_bytes = 0, total = 0;
  cudaDeviceProp properties{};
  CHECK(cudaMemGetInfo(&free_bytes, &total));
  CHECK(cudaGetDeviceProperties(&properties, 0));
  std::printf("free %zu of %zu MiB, properties say %zu MiB\n", free_bytes / kMiB, total / kMiB,
              properties.totalGlobalMem / kMiB);
}

template <typename Allocate>
void fill(const char* name, Allocate allocate) {
  std::vector<void*> blocks;
  void* block = nullptr;
  cudaError_t code;
  while ((code = allocate(&block)) == cudaSuccess) blocks.push_back(block);
  std::printf("%s: %zu blocks, then %s\n", name, blocks.size(), cudaGetErrorName(code));
  std::printf("  peeked %s,", cudaGetErrorName(cudaPeekAtLastError()));
  std::printf(" last %s,", cudaGetErrorName(cudaGetLastError()));
  std::printf(" then %s\n", cudaGetErrorName(cudaGetLastError()));
  show();
  for (void* held : blocks) CHECK(cudaFree(held));
  CHECK(cudaDeviceSynchronize());
  show();
}

}  // namespace

int main() {
  show();
  fill("cudaMalloc", [](void** block) { return cudaMalloc(block, 8 * kMiB); });
  fill("cudaMallocPitch", [](void** block) {
    size_t pitch = 0;
    return cudaMallocPitch(block, &pitch, 4000, 2 * kMiB / 1024);
  });
  fill("cudaMallocAsync", [](void** block) { return cudaMallocAsync(block, 8 * kMiB, nullptr); });
  void* managed = nullptr;
  CHECK(cudaMallocManaged(&managed, 100 * kMiB));
  show();
  CHECK(cudaFree(managed));
  CHECK(cudaDeviceReset());
  show();
  return 0;
}
