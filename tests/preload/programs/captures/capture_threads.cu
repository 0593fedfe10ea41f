// SPDX-License-Identifier: Apache-2.0
// A capture stays valid while another thread allocates and frees.
// The graph must compute, and the other thread must get memory.

#include <atomic>
#include <thread>

#include "../check.h"
#include "../kernels.cuh"

namespace {

constexpr size_t kWords = 20000;
std::atomic<bool> g_stop{false};
std::atomic<unsigned> g_pairs{0};

void allocate_and_free(unsigned* failures) {
  while (!g_stop) {
    void* block = nullptr;
    if (cudaMalloc(&block, 30000) != cudaSuccess || cudaFree(block) != cudaSuccess) ++*failures;
    ++g_pairs;
    std::this_thread::yield();
  }
}

unsigned long long capture_and_launch(cudaStream_t stream, uint32_t* words,
                                      unsigned long long* total, uint32_t seed) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaMemsetAsync(total, 0, sizeof *total, stream));
  fill_words<<<4, 128, 0, stream>>>(words, kWords, seed);
  for (const unsigned before = g_pairs; g_pairs - before < 20;) std::this_thread::yield();
  sum_words<<<4, 128, 0, stream>>>(words, kWords, total);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaGraphLaunch(executable, stream));
  unsigned long long sum = 0;
  CHECK(cudaMemcpyAsync(&sum, total, sizeof sum, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
  return sum;
}

}  // namespace

int main() {
  cudaStream_t stream;
  uint32_t* words;
  unsigned long long* total;
  unsigned failures = 0;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaMalloc(&words, kWords * sizeof *words));
  CHECK(cudaMalloc(&total, sizeof *total));
  std::thread other(allocate_and_free, &failures);
  for (uint32_t round = 0; round < 10; ++round) {
    std::printf("sum %llu\n", capture_and_launch(stream, words, total, round));
  }
  g_stop = true;
  other.join();
  CHECK(cudaFree(words));
  CHECK(cudaFree(total));
  CHECK(cudaStreamDestroy(stream));
  std::printf("failures of the other thread %u\n", failures);
  return 0;
}
