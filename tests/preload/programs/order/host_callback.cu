// SPDX-License-Identifier: Apache-2.0
// Buffers handed over by host functions on a stream and freed by the main thread.
// Meanwhile the next buffer is already being filled.

#include <condition_variable>
#include <deque>
#include <mutex>

#include "../check.h"
#include "../kernels.cuh"

namespace {

struct Finished {
  std::mutex mutex;
  std::condition_variable ready;
  std::deque<void*> buffers;
};

Finished g_finished;

// Runs on a thread of the driver; must not call CUDA.
void hand_over(void* buffer) {
  const std::lock_guard<std::mutex> lock(g_finished.mutex);
  g_finished.buffers.push_back(buffer);
  g_finished.ready.notify_one();
}

void* take() {
  std::unique_lock<std::mutex> lock(g_finished.mutex);
  g_finished.ready.wait(lock, [] { return !g_finished.buffers.empty(); });
  void* buffer = g_finished.buffers.front();
  g_finished.buffers.pop_front();
  return buffer;
}

}  // namespace

int main() {
  constexpr int kBuffers = 100;
  constexpr size_t kWords = 20000;
  cudaStream_t stream;
  unsigned long long* total;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaMalloc(&total, sizeof *total));
  CHECK(cudaMemsetAsync(total, 0, sizeof *total, stream));
  for (uint32_t i = 0; i < kBuffers; ++i) {
    uint32_t* words;
    CHECK(cudaMalloc(&words, kWords * sizeof *words));
    fill_words<<<4, 128, 0, stream>>>(words, kWords, i);
    sum_words<<<4, 128, 0, stream>>>(words, kWords, total);
    CHECK(cudaLaunchHostFunc(stream, hand_over, words));
    if (i >= 4) CHECK(cudaFree(take()));
  }
  for (int i = 0; i < 4; ++i) CHECK(cudaFree(take()));
  unsigned long long sum = 0;
  CHECK(cudaMemcpyAsync(&sum, total, sizeof sum, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaFree(total));
  CHECK(cudaStreamDestroy(stream));
  std::printf("sum %llu\n", sum);
  return 0;
}
