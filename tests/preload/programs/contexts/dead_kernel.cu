// SPDX-License-Identifier: Apache-2.0
// A kernel dies: allocations and frees answer as the driver does, until the device is reset.
// The program meets the error in the way its argument names, goes on in spite of it, resets the
// device and starts afresh. In the simulated device the first launch is the one that dies
// (SIMCUDA_LOSE).

#include <cstring>

#include "../check.h"
#include "../kernels.cuh"

namespace {

constexpr size_t kSmall = 4096, kLarge = size_t{6} << 20;

#define SAY(call) say(#call, (call))

void say(const char* call, cudaError_t status) {
  std::printf("%s: %s, last error %s\n", call, cudaGetErrorName(status),
              cudaGetErrorName(cudaGetLastError()));
}

void meet(const char* way, cudaStream_t stream, cudaEvent_t event, const void* block) {
  uint32_t word;
  if (std::strcmp(way, "device") == 0) SAY(cudaDeviceSynchronize());
  if (std::strcmp(way, "stream") == 0) SAY(cudaStreamSynchronize(stream));
  if (std::strcmp(way, "event") == 0) SAY(cudaEventSynchronize(event));
  if (std::strcmp(way, "copy") == 0) {
    SAY(cudaMemcpy(&word, block, sizeof word, cudaMemcpyDeviceToHost));
  }
  if (std::strcmp(way, "info") == 0) {
    size_t free, total;
    SAY(cudaMemGetInfo(&free, &total));
  }
  // Nothing is cached for this size: the allocation itself reaches the driver.
  void* fresh;
  if (std::strcmp(way, "malloc") == 0) SAY(cudaMalloc(&fresh, 40 * kLarge));
}

// What the pool could serve: each has been freed and synchronised before.
void use_pool(void* small, void* large) {
  void* block = nullptr;
  SAY(cudaMalloc(&block, kSmall));
  SAY(cudaMalloc(&block, kLarge));
  SAY(cudaFree(small));
  SAY(cudaFree(large));
  SAY(cudaFree(large));
  SAY(cudaFree(static_cast<char*>(large) + 4));
  SAY(cudaFree(nullptr));
}

void warm_up() {
  void *small, *large;
  for (int i = 0; i < 4; ++i) {
    CHECK(cudaMalloc(&small, kSmall));
    CHECK(cudaMalloc(&large, kLarge));
    CHECK(cudaFree(small));
    CHECK(cudaFree(large));
    CHECK(cudaDeviceSynchronize());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "device";
  warm_up();
  cudaStream_t stream;
  cudaEvent_t event;
  uint32_t *small, *large;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&event));
  CHECK(cudaMalloc(&small, kSmall));
  CHECK(cudaMalloc(&large, kLarge));
  CHECK(cudaEventRecord(event, stream));
  fill_words<<<1, 32, 0, stream>>>(small, 100, 1);
  meet(way, stream, event, large);
  use_pool(small, large);
  SAY(cudaDeviceSynchronize());

  SAY(cudaDeviceReset());
  SAY(cudaFree(small));
  SAY(cudaFree(large));
  warm_up();
  CHECK(cudaMalloc(&small, kSmall));
  fill_words<<<1, 32>>>(small, 100, 1);
  uint32_t word = 0;
  CHECK(cudaMemcpy(&word, small, sizeof word, cudaMemcpyDeviceToHost));
  std::printf("afterwards: %u\n", word);
  CHECK(cudaFree(small));
  return 0;
}
