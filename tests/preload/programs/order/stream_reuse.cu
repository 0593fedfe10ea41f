// SPDX-License-Identifier: Apache-2.0
// A block freed under a pending kernel is not handed out while that kernel can still write it.
// A buffer is freed while a slow kernel on one stream is still to write it; the next buffer of the
// same size is written and read on another stream that waits for nothing. If both were the same
// memory too early, the slow kernel would write into the second buffer.

#include <vector>

#include "../check.h"
#include "../kernels.cuh"

namespace {

constexpr size_t kBytes = size_t{1} << 20;
constexpr size_t kWords = kBytes / sizeof(uint32_t);

size_t wrong_words(const std::vector<uint32_t>& words, uint32_t seed) {
  size_t wrong = 0;
  for (size_t i = 0; i < words.size(); ++i) wrong += words[i] != seed + static_cast<uint32_t>(i);
  return wrong;
}

}  // namespace

int main() {
  constexpr int kRounds = 25;
  cudaStream_t slow, quick;
  CHECK(cudaStreamCreateWithFlags(&slow, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&quick, cudaStreamNonBlocking));
  std::vector<uint32_t> seen(kWords);
  size_t wrong_at_once = 0;
  size_t wrong_later = 0;
  for (uint32_t round = 0; round < kRounds; ++round) {
    uint32_t *first, *second;
    CHECK(cudaMalloc(&first, kBytes));
    slow_fill_words<<<32, 128, 0, slow>>>(first, kWords, 0xdead0000u, 2000);
    CHECK(cudaGetLastError());
    CHECK(cudaFree(first));

    CHECK(cudaMalloc(&second, kBytes));
    fill_words<<<32, 128, 0, quick>>>(second, kWords, round);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(seen.data(), second, kBytes, cudaMemcpyDeviceToHost, quick));
    CHECK(cudaStreamSynchronize(quick));
    wrong_at_once += wrong_words(seen, round);

    CHECK(cudaStreamSynchronize(slow));
    CHECK(cudaMemcpyAsync(seen.data(), second, kBytes, cudaMemcpyDeviceToHost, quick));
    CHECK(cudaStreamSynchronize(quick));
    wrong_later += wrong_words(seen, round);
    CHECK(cudaFree(second));
  }
  CHECK(cudaStreamDestroy(slow));
  CHECK(cudaStreamDestroy(quick));
  std::printf("wrong words: at once %zu, later %zu\n", wrong_at_once, wrong_later);
  return wrong_at_once + wrong_later == 0 ? 0 : 1;
}
