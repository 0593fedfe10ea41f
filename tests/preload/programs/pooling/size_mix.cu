// SPDX-License-Identifier: Apache-2.0
// Small and large blocks in random order never overlap.
// There are 64 places. Every block is filled when it is allocated and summed before it is freed.

#include "../check.h"
#include "../kernels.cuh"

namespace {

struct Block {
  uint32_t* words = nullptr;
  size_t count = 0;
};

// A quarter of the requests are at least 1 MiB, the rest range from 4 bytes to 64 KiB.
size_t random_count(Random& random) {
  if (random.below(4) == 0) return (size_t{1} << 18) + random.below(1u << 19);
  return 1 + random.below(1u << random.below(15));
}

}  // namespace

int main() {
  constexpr int kOperations = 3000;
  Block blocks[64];
  Random random(2025);
  unsigned long long* total;
  CHECK(cudaMalloc(&total, sizeof *total));
  CHECK(cudaMemset(total, 0, sizeof *total));
  unsigned allocations = 0;
  for (int operation = 0; operation < kOperations; ++operation) {
    Block& block = blocks[random.below(64)];
    if (block.words != nullptr) {
      sum_words<<<4, 128>>>(block.words, block.count, total);
      CHECK(cudaGetLastError());
      CHECK(cudaFree(block.words));
      block.words = nullptr;
      continue;
    }
    block.count = random_count(random);
    CHECK(cudaMalloc(&block.words, block.count * sizeof *block.words));
    fill_words<<<4, 128>>>(block.words, block.count, static_cast<uint32_t>(operation));
    CHECK(cudaGetLastError());
    ++allocations;
  }
  for (Block& block : blocks) {
    if (block.words != nullptr) sum_words<<<4, 128>>>(block.words, block.count, total);
    CHECK(cudaFree(block.words));
  }
  unsigned long long sum = 0;
  CHECK(cudaMemcpy(&sum, total, sizeof sum, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(total));
  std::printf("allocations %u, sum %llu\n", allocations, sum);
  return 0;
}
