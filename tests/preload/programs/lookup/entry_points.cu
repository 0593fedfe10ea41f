// SPDX-License-Identifier: Apache-2.0
// Functions from cudaGetDriverEntryPoint; blocks allocated on one layer, freed on the other.
// As NCCL does, for both rules of the default stream; and a name that nobody has.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "../check.h"
#include "../kernels.cuh"

namespace {

template <typename Function>
Function entry_point(const char* name, unsigned version, unsigned long long flags) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  CHECK(cudaGetDriverEntryPointByVersion(name, &function, version, flags, &found));
  std::printf("%s: found %d\n", name, found == cudaDriverEntryPointSuccess && function != nullptr);
  return reinterpret_cast<Function>(function);
}

}  // namespace

int main() {
  CHECK(cudaSetDevice(0));
  const auto alloc = entry_point<CUresult (*)(CUdeviceptr*, size_t)>("cuMemAlloc", 3020, 0);
  const auto free = entry_point<CUresult (*)(CUdeviceptr)>("cuMemFree", 3020, 0);
  const auto wait = entry_point<CUresult (*)(CUstream)>("cuStreamSynchronize", 7000,
                                                        cudaEnablePerThreadDefaultStream);
  entry_point<void*>("cuNoSuchFunction", 13000, 0);

  CUdeviceptr driver_block = 0;
  uint32_t* runtime_block;
  std::printf("driver allocates %d\n", alloc(&driver_block, 6000));
  CHECK(cudaMalloc(&runtime_block, 6000));
  fill_words<<<1, 128>>>(reinterpret_cast<uint32_t*>(driver_block), 1500, 3);
  CHECK(cudaMemcpy(runtime_block, reinterpret_cast<void*>(driver_block), 6000, cudaMemcpyDefault));
  uint32_t seen[1500];
  CHECK(cudaMemcpy(seen, runtime_block, sizeof seen, cudaMemcpyDeviceToHost));
  std::printf("last word %u, wait %d\n", seen[1499], wait(nullptr));
  CHECK(cudaFree(reinterpret_cast<void*>(driver_block)));
  std::printf("driver frees %d\n", free(reinterpret_cast<CUdeviceptr>(runtime_block)));

  int blocks = 0;
  cudaFuncAttributes attributes{};
  CHECK(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&fill_words)));
  const cudaError_t asked =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill_words, 128, 0);
  std::printf("kernel can run: %d; occupancy: %s\n", attributes.maxThreadsPerBlock >= 128,
              cudaGetErrorName(asked));
  return 0;
}
