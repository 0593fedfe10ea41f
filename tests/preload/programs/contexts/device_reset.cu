// SPDX-License-Identifier: Apache-2.0
// The device is reset in the middle, and the program goes on.
// Blocks are allocated, freed and still in use.

#include "../check.h"
#include "../kernels.cuh"

namespace {

constexpr size_t kWords = 100000;

unsigned long long fill_and_sum(uint32_t* words, uint32_t seed) {
  unsigned long long* total;
  CHECK(cudaMalloc(&total, sizeof *total));
  CHECK(cudaMemset(total, 0, sizeof *total));
  fill_words<<<8, 128>>>(words, kWords, seed);
  sum_words<<<8, 128>>>(words, kWords, total);
  CHECK(cudaGetLastError());
  unsigned long long sum = 0;
  CHECK(cudaMemcpy(&sum, total, sizeof sum, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(total));
  return sum;
}

}  // namespace

int main() {
  uint32_t *kept = nullptr, *freed = nullptr;
  CHECK(cudaMalloc(&kept, kWords * sizeof *kept));
  CHECK(cudaMalloc(&freed, size_t{4} << 20));
  std::printf("before: sum %llu\n", fill_and_sum(kept, 1));
  CHECK(cudaFree(freed));
  slow_fill_words<<<8, 128>>>(kept, kWords, 7, 3000);
  CHECK(cudaGetLastError());

  CHECK(cudaDeviceReset());
  std::printf("old block after reset: %s\n", cudaGetErrorName(cudaFree(kept)));
  std::printf("last error: %s\n", cudaGetErrorName(cudaGetLastError()));

  for (uint32_t round = 0; round < 3; ++round) {
    uint32_t* block;
    CHECK(cudaMalloc(&block, kWords * sizeof *block));
    std::printf("after: sum %llu\n", fill_and_sum(block, round));
    CHECK(cudaFree(block));
  }
  CHECK(cudaDeviceReset());
  return 0;
}
