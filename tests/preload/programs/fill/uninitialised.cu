// SPDX-License-Identifier: Apache-2.0
// Memory read that nobody wrote, a planted fault, shows with the fill on.
// A program with a fault: it adds up numbers on the device, and never sets the total to zero. It
// works all the same where the total's memory happens to be zero, as it is here: an earlier buffer,
// which was set to zero, lay there. config/RECIPES.md shows how the fault is found.

#include "../check.h"
#include "../kernels.cuh"

namespace {

constexpr size_t kWords = 1000;
constexpr unsigned long long kRight = kWords * (kWords - 1) / 2;

unsigned long long* new_total() {
  unsigned long long* total;
  CHECK(cudaMalloc(&total, sizeof *total));
  return total;
}

unsigned long long sum_into(unsigned long long* total, const uint32_t* words) {
  sum_words<<<4, 128>>>(words, kWords, total);
  CHECK(cudaGetLastError());
  unsigned long long sum;
  CHECK(cudaMemcpy(&sum, total, sizeof sum, cudaMemcpyDeviceToHost));
  return sum;
}

}  // namespace

int main() {
  uint32_t* words;
  CHECK(cudaMalloc(&words, kWords * sizeof *words));
  fill_words<<<4, 128>>>(words, kWords, 0);
  CHECK(cudaGetLastError());

  unsigned long long* zero = new_total();
  CHECK(cudaMemset(zero, 0, sizeof *zero));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaFree(zero));
  CHECK(cudaDeviceSynchronize());

  unsigned long long* total = new_total();
  const unsigned long long sum = sum_into(total, words);
  CHECK(cudaFree(total));
  CHECK(cudaFree(words));
  if (sum == kRight) {
    std::printf("sum %llu\n", sum);
    return 0;
  }
  std::printf("sum wrong: the total began as 0x%llx\n", sum - kRight);
  return 1;
}
