// SPDX-License-Identifier: Apache-2.0
// Several threads with streams of their own, and frees by other threads.
// Four threads, each with its own stream. A block is filled and summed by one thread and freed by
// its neighbour, and every thread also frees some of its own while the kernel is still running.

#include <mutex>
#include <thread>
#include <vector>

#include "../check.h"
#include "../kernels.cuh"

namespace {

constexpr int kThreads = 4;
constexpr int kIterations = 150;

class Inbox {
 public:
  void put(void* block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_.push_back(block);
  }
  void free_all() {
    std::vector<void*> blocks;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      blocks.swap(blocks_);
    }
    for (void* block : blocks) CHECK(cudaFree(block));
  }

 private:
  std::mutex mutex_;
  std::vector<void*> blocks_;
};

Inbox g_inbox[kThreads];

void work(int self, unsigned long long* total) {
  Random random(self + 1);
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int i = 0; i < kIterations; ++i) {
    const size_t words = 1000 * (1 + random.below(i % 10 == 0 ? 400 : 4));
    uint32_t* block;
    CHECK(cudaMalloc(&block, words * sizeof *block));
    fill_words<<<4, 128, 0, stream>>>(block, words, static_cast<uint32_t>(self * 1000 + i));
    sum_words<<<4, 128, 0, stream>>>(block, words, total);
    CHECK(cudaGetLastError());
    if (i % 2 == 0) {
      CHECK(cudaFree(block));
    } else {
      CHECK(cudaStreamSynchronize(stream));
      g_inbox[(self + 1) % kThreads].put(block);
    }
    g_inbox[self].free_all();
  }
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  unsigned long long* totals;
  CHECK(cudaMalloc(&totals, kThreads * sizeof *totals));
  CHECK(cudaMemset(totals, 0, kThreads * sizeof *totals));
  CHECK(cudaDeviceSynchronize());
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i, totals + i);
  for (std::thread& thread : threads) thread.join();
  for (Inbox& inbox : g_inbox) inbox.free_all();
  unsigned long long sums[kThreads];
  CHECK(cudaMemcpy(sums, totals, sizeof sums, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(totals));
  for (const unsigned long long sum : sums) std::printf("sum %llu\n", sum);
  return 0;
}
