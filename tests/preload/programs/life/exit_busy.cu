// SPDX-License-Identifier: Apache-2.0
// Exit while work is under way.
// Kernels are running, blocks are freed, live and waiting, and a second thread still allocates.
// Nothing is synchronised.

#include <thread>

#include "../check.h"
#include "../kernels.cuh"

int main() {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  constexpr size_t kWords = 100000;
  for (int i = 0; i < 5; ++i) {
    uint32_t* block;
    CHECK(cudaMalloc(&block, kWords * sizeof *block));
    if (i < 2) CHECK(cudaFree(block));
    if (i >= 2) slow_fill_words<<<4, 128, 0, stream>>>(block, kWords, i, 20000);
    CHECK(cudaGetLastError());
  }
  std::thread([] {
    for (;;) {
      void* block = nullptr;
      if (cudaMalloc(&block, 5000) != cudaSuccess) return;
      cudaFree(block);
    }
  }).detach();
  std::printf("main ends\n");
  return 0;
}
