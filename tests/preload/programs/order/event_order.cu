// SPDX-License-Identifier: Apache-2.0
// A block is not handed out too early between pairs of streams that only events order.
// Two pairs of streams, each ordered by events: a buffer is written on one stream of a pair, read
// on the other and freed as soon as its last use is enqueued. Nothing orders one pair after the
// other, and all buffers have the same size, so one that is handed on too early gives a wrong sum.

#include "../check.h"
#include "../kernels.cuh"

int main() {
  constexpr int kStreams = 4;
  constexpr int kRounds = 60;
  constexpr size_t kWords = 20000;
  cudaStream_t streams[kStreams];
  cudaEvent_t filled;
  unsigned long long* total;
  uint32_t* scratch;
  for (cudaStream_t& stream : streams) CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming));
  CHECK(cudaMalloc(&scratch, kStreams * sizeof *scratch));
  CHECK(cudaMalloc(&total, sizeof *total));
  CHECK(cudaMemset(total, 0, sizeof *total));
  for (int round = 0; round < kRounds; ++round) {
    const int writer = 2 * round % kStreams;
    const int reader = writer + 1;
    uint32_t* buffer;
    CHECK(cudaMalloc(&buffer, kWords * sizeof *buffer));
    fill_words<<<8, 128, 0, streams[writer]>>>(buffer, kWords, 1000 * round);
    CHECK(cudaEventRecord(filled, streams[writer]));
    CHECK(cudaStreamWaitEvent(streams[reader], filled, 0));
    slow_fill_words<<<1, 1, 0, streams[reader]>>>(scratch + reader, 1, round, 300);
    sum_words<<<8, 128, 0, streams[reader]>>>(buffer, kWords, total);
    CHECK(cudaGetLastError());
    CHECK(cudaFree(buffer));
  }
  CHECK(cudaDeviceSynchronize());
  unsigned long long sum = 0;
  CHECK(cudaMemcpy(&sum, total, sizeof sum, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(scratch));
  CHECK(cudaFree(total));
  CHECK(cudaEventDestroy(filled));
  for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
  std::printf("sum %llu\n", sum);
  return 0;
}
