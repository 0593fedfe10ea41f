// SPDX-License-Identifier: Apache-2.0
// Pinned, managed, pitched and stream-ordered memory stay the driver's, attributes the same.
// Every kind of memory the runtime offers, used once and asked about: only plain device memory may
// be pooled, and nothing a program can ask may tell the difference.

#include <cstring>
#include <vector>

#include "../check.h"
#include "../kernels.cuh"

namespace {

constexpr size_t kWords = 3000;
constexpr size_t kBytes = kWords * sizeof(uint32_t);

void describe(const char* what, const void* pointer) {
  cudaPointerAttributes attributes{};
  CHECK(cudaPointerGetAttributes(&attributes, pointer));
  std::printf("%s: type %d, device %d, on device %d, on host %d\n", what, attributes.type,
              attributes.device, attributes.devicePointer == pointer,
              attributes.hostPointer == pointer);
}

unsigned long long filled_sum(uint32_t* words) {
  fill_words<<<2, 128>>>(words, kWords, 5);
  CHECK(cudaGetLastError());
  std::vector<uint32_t> seen(kWords);
  CHECK(cudaMemcpy(seen.data(), words, kBytes, cudaMemcpyDefault));
  unsigned long long sum = 0;
  for (const uint32_t word : seen) sum += word;
  return sum;
}

void device_memory() {
  uint32_t *small, *large;
  CHECK(cudaMalloc(&small, kBytes));
  CHECK(cudaMalloc(&large, 1000 * kBytes));
  describe("small", small);
  describe("inside small", small + 7);
  describe("large", large);
  std::printf("aligned to 512: %d %d\n", reinterpret_cast<size_t>(small) % 512 == 0,
              reinterpret_cast<size_t>(large) % 512 == 0);
  std::printf("sums %llu %llu\n", filled_sum(small), filled_sum(large));
  CHECK(cudaMemcpy(large + kWords, small, kBytes, cudaMemcpyDeviceToDevice));
  describe("past small", small + kWords);
  describe("never handed out", small + (1 << 18));
  CHECK(cudaFree(small));
  CHECK(cudaFree(large));
  describe("freed small", small);
  describe("inside freed large", large + 5);
}

void host_memory() {
  uint32_t *pinned, *mapped;
  std::vector<uint32_t> pageable(kWords);
  CHECK(cudaMallocHost(&pinned, kBytes));
  CHECK(cudaHostAlloc(&mapped, kBytes, cudaHostAllocMapped));
  describe("pinned", pinned);
  describe("mapped", mapped);
  describe("pageable", pageable.data());
  std::printf("sum %llu\n", filled_sum(mapped));
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaFreeHost(mapped));
}

void managed_memory() {
  uint32_t* managed;
  CHECK(cudaMallocManaged(&managed, kBytes));
  describe("managed", managed);
  std::printf("sum %llu\n", filled_sum(managed));
  CHECK(cudaDeviceSynchronize());
  std::printf("seen by the host %u\n", managed[1]);
  CHECK(cudaFree(managed));
}

void pitched_memory() {
  constexpr size_t kWidth = 100, kHeight = 20;
  unsigned char* plane;
  size_t pitch;
  CHECK(cudaMallocPitch(&plane, &pitch, kWidth, kHeight));
  CHECK(cudaMemset2D(plane, pitch, 3, kWidth, kHeight));
  std::vector<unsigned char> seen(kWidth * kHeight);
  CHECK(cudaMemcpy2D(seen.data(), kWidth, plane, pitch, kWidth, kHeight, cudaMemcpyDeviceToHost));
  unsigned sum = 0;
  for (const unsigned char byte : seen) sum += byte;
  std::printf("pitch is enough %d, sum %u\n", pitch >= kWidth, sum);
  CHECK(cudaFree(plane));
}

void stream_ordered_memory() {
  cudaStream_t stream;
  uint32_t *words, *plain;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMallocAsync(&words, kBytes, stream));
  CHECK(cudaMemsetAsync(words, 0, kBytes, stream));
  CHECK(cudaStreamSynchronize(stream));
  describe("stream-ordered", words);
  std::printf("sum %llu\n", filled_sum(words));
  CHECK(cudaFreeAsync(words, stream));
  CHECK(cudaMallocAsync(&plain, kBytes, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaFree(plain));  // allowed for stream-ordered memory, too
  CHECK(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  device_memory();
  host_memory();
  managed_memory();
  pitched_memory();
  stream_ordered_memory();
  return 0;
}
