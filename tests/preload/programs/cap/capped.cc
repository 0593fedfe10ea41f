// SPDX-License-Identifier: Apache-2.0
// A cap is told as a device of that size would be.
// Fills a small device, in large and in small blocks, and asks how much there is. A process with a
// cap of that size on a larger device must be told the same.

#include <vector>

#include "../driver_codes.h"

namespace {

void info() {
  size_t free_bytes = 0, total = 0;
  SAY(cuMemGetInfo(&free_bytes, &total));
  std::printf("free %zu MiB of %zu MiB\n", free_bytes / kMiB, total / kMiB);
}

void fill(size_t bytes) {
  std::vector<CUdeviceptr> blocks;
  CUdeviceptr block = 0;
  CUresult code;
  while ((code = cuMemAlloc(&block, bytes)) == CUDA_SUCCESS) blocks.push_back(block);
  std::printf("%zu blocks of %zu, then %d\n", blocks.size(), bytes, code);
  info();
  for (const CUdeviceptr held : blocks) cuMemFree(held);
  SAY(cuCtxSynchronize());
  info();
}

}  // namespace

int main() {
  use_device(0);
  info();
  CUdeviceptr block = 0;
  SAY(cuMemAlloc(&block, 66 * kMiB));
  SAY(cuMemAlloc(&block, size_t{1} << 60));
  SAY(cuMemAlloc(&block, 64 * kMiB));
  SAY(cuMemAlloc(&block, 1000));
  info();
  SAY(cuMemFree(block));
  fill(6 * kMiB);
  fill(2 * kMiB);
  fill(64 * 1024);
  SAY(cuMemAlloc(&block, 64 * kMiB));
  return 0;
}
