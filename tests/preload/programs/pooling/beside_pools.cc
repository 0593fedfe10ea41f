// SPDX-License-Identifier: Apache-2.0
// What the driver's memory pool keeps, and nothing uses, serves cudaMalloc before memory is out.
//
//   beside_pools BYTES   the default pool is told to keep all memory, gets some of it, and has it
//                        back; the rest of the device is taken by cuMemAlloc, in blocks of BYTES,
//                        until that is refused
#include <cstdlib>
#include <vector>

#include "../driver_codes.h"

int main(int argc, char** argv) {
  if (argc < 2) return 1;
  const size_t bytes = std::strtoull(argv[1], nullptr, 10);
  use_device(0);
  CUmemoryPool pool = nullptr;
  SAY(cuDeviceGetDefaultMemPool(&pool, 0));
  cuuint64_t all = UINT64_MAX;
  SAY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
  CUdeviceptr live = 0, some = 0;
  SAY(cuMemAllocAsync(&live, kMiB, nullptr));
  SAY(cuMemAllocAsync(&some, 60 * kMiB, nullptr));
  SAY(cuMemFreeAsync(some, nullptr));
  SAY(cuCtxSynchronize());
  std::vector<CUdeviceptr> blocks;
  CUdeviceptr block = 0;
  while (cuMemAlloc(&block, bytes) == CUDA_SUCCESS) blocks.push_back(block);
  std::printf("MiB beside the pool: %zu\n", blocks.size() * bytes / kMiB);
  for (const CUdeviceptr each : blocks) cuMemFree(each);
  SAY(cuMemFreeAsync(live, nullptr));
  SAY(cuCtxSynchronize());
  return 0;
}
