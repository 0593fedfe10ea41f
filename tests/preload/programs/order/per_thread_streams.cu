// SPDX-License-Identifier: Apache-2.0
// Per-thread default streams: calls by the functions that are made for them are pooled, too.
// Built with --default-stream per-thread: the default stream is each thread's own, and every call
// goes to the functions with the suffixes _ptsz and _ptds.

#include <thread>
#include <vector>

#include "../check.h"
#include "../kernels.cuh"

namespace {

constexpr size_t kWords = 30000;

void work(uint32_t seed, unsigned long long* sum) {
  for (uint32_t round = 0; round < 40; ++round) {
    uint32_t* words;
    CHECK(cudaMalloc(&words, kWords * sizeof *words));
    slow_fill_words<<<4, 128>>>(words, kWords, seed + round, 100);
    CHECK(cudaGetLastError());
    std::vector<uint32_t> seen(kWords);
    CHECK(cudaMemcpyAsync(seen.data(), words, kWords * sizeof *words, cudaMemcpyDeviceToHost));
    CHECK(cudaStreamSynchronize(nullptr));
    CHECK(cudaFree(words));
    for (const uint32_t word : seen) *sum += word;
  }
}

}  // namespace

int main() {
  unsigned long long sums[3] = {};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 3; ++i) threads.emplace_back(work, i * 1000, &sums[i]);
  for (std::thread& thread : threads) thread.join();
  for (const unsigned long long sum : sums) std::printf("sum %llu\n", sum);
  return 0;
}
