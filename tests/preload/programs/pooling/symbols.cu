// SPDX-License-Identifier: Apache-2.0
// Variables on the device: found, copied to and from, and freed by nobody, as without the object.
// The large one takes its memory at the first use, when the device is full of what the program has
// freed.

#include <cstring>

#include "../check.h"

namespace {

constexpr size_t kLarge = size_t{40} << 20;

__device__ int words[1000];
__constant__ float factors[4];
__device__ char large[kLarge];

void say(const char* what, cudaError_t status) {
  std::printf("%s: %s\n", what, cudaGetErrorName(status));
  (void)cudaGetLastError();
}

void fill_and_free_the_device() {
  size_t free_bytes = 0, total = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &total));
  void* block = nullptr;
  CHECK(cudaMalloc(&block, free_bytes - (size_t{8} << 20)));
  CHECK(cudaMemset(block, 1, 1000));
  CHECK(cudaFree(block));
}

}  // namespace

int main() {
  fill_and_free_the_device();
  void* address = nullptr;
  size_t bytes = 0;
  CHECK(cudaGetSymbolAddress(&address, large));
  CHECK(cudaGetSymbolSize(&bytes, large));
  std::printf("large has %zu bytes\n", bytes);
  CHECK(cudaMemset(address, 5, bytes));
  say("free of a variable", cudaFree(address));
  char last = 0;
  CHECK(cudaMemcpyFromSymbol(&last, large, 1, kLarge - 1));
  std::printf("its last byte is %d\n", last);

  int numbers[1000], back[1000];
  for (int i = 0; i < 1000; ++i) numbers[i] = i * i;
  CHECK(cudaMemcpyToSymbol(words, numbers, sizeof numbers));
  CHECK(cudaMemcpyFromSymbol(back, words, sizeof back));
  std::printf("words are %s\n",
              std::memcmp(numbers, back, sizeof back) == 0 ? "the same" : "others");
  CHECK(cudaMemcpyFromSymbol(back, words, 4, 999 * 4));
  std::printf("the last one is %d\n", back[0]);
  say("beyond the end", cudaMemcpyFromSymbol(back, words, 8, 999 * 4));
  say("the wrong way", cudaMemcpyToSymbol(words, numbers, 4, 0, cudaMemcpyDeviceToHost));

  const float halves[4] = {0.5f, 1.5f, 2.5f, 3.5f};
  float factor = 0;
  CHECK(
      cudaMemcpyToSymbolAsync(factors, halves, sizeof halves, 0, cudaMemcpyHostToDevice, nullptr));
  CHECK(cudaMemcpyFromSymbol(&factor, factors, sizeof factor, 2 * sizeof factor));
  std::printf("a factor is %.1f\n", factor);
  CHECK(cudaMemcpyFromSymbolAsync(&factor, factors, sizeof factor, 0, cudaMemcpyDeviceToHost));
  CHECK(cudaStreamSynchronize(nullptr));
  std::printf("the first one is %.1f\n", factor);
  say("no variable", cudaGetSymbolAddress(&address, numbers));
  return 0;
}
