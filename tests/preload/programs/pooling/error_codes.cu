// SPDX-License-Identifier: Apache-2.0
// CUDA's own codes, last-error state and memory info: too large, size 0, inside, twice, foreign.
// What a program is told when it asks for too much, frees what it should not, or asks how much
// memory there is. Every answer is printed.

#include "../check.h"
#include "../kernels.cuh"

namespace {

void say(const char* what, cudaError_t status) {
  std::printf("%s: %s; last error: %s", what, cudaGetErrorName(status),
              cudaGetErrorName(cudaPeekAtLastError()));
  std::printf(", taken: %s", cudaGetErrorName(cudaGetLastError()));
  std::printf(", then: %s\n", cudaGetErrorName(cudaGetLastError()));
}

void allocation_errors() {
  void* pointer = &pointer;
  say("malloc of 2^60 bytes", cudaMalloc(&pointer, size_t{1} << 60));
  std::printf("pointer untouched by the failure: %d\n", pointer == &pointer);
  say("malloc of 0 bytes", cudaMalloc(&pointer, 0));
  std::printf("pointer is null: %d\n", pointer == nullptr);
  say("malloc to nowhere", cudaMalloc(static_cast<void**>(nullptr), 16));
  CHECK(cudaMalloc(&pointer, 16));
  say("malloc after failures", cudaSuccess);
  say("free", cudaFree(pointer));
}

void free_errors(size_t bytes) {
  char* pointer;
  CHECK(cudaMalloc(&pointer, bytes));
  say("free of the inside", cudaFree(pointer + bytes / 2));
  say("free", cudaFree(pointer));
  say("second free", cudaFree(pointer));
  int on_the_stack = 0;
  say("free of the stack", cudaFree(&on_the_stack));
  say("free of an odd number", cudaFree(reinterpret_cast<void*>(0x1234567)));
  say("free of null", cudaFree(nullptr));
}

void memory_info() {
  constexpr size_t kBytes = size_t{64} << 20;
  size_t before, during, after, total;
  void* pointer;
  CHECK(cudaMemGetInfo(&before, &total));
  CHECK(cudaMalloc(&pointer, kBytes));
  CHECK(cudaMemGetInfo(&during, &total));
  CHECK(cudaFree(pointer));
  CHECK(cudaMemGetInfo(&after, &total));
  std::printf("free <= total: %d, lower by 64 MiB while allocated: %d, as before after free: %d\n",
              before <= total, before - during == kBytes, after == before);
}

void launch_errors() {
  uint32_t* block;
  CHECK(cudaMalloc(&block, 64));
  stamp_block<<<1, 4096>>>(block, 16, 1);
  say("launch with 4096 threads a block", cudaSuccess);
  stamp_block<<<1, 1>>>(block, 16, 42);
  say("launch", cudaSuccess);
  uint32_t seen = 0;
  CHECK(cudaMemcpy(&seen, block, sizeof seen, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(block));
  std::printf("stamp %u\n", seen);
}

}  // namespace

int main() {
  allocation_errors();
  free_errors(1000);
  free_errors(size_t{3} << 20);
  memory_info();
  launch_errors();
  return 0;
}
