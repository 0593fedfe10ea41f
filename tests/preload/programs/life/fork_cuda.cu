// SPDX-License-Identifier: Apache-2.0
// Forks before and after the first CUDA call.
// The argument says which. A child of a process without CUDA works like any process; one of a
// process with CUDA has a working malloc and is told by the driver that it cannot go on. The parent
// works in both cases.

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "../check.h"
#include "../kernels.cuh"

namespace {

unsigned long long work(uint32_t seed) {
  constexpr size_t kWords = 50000;
  unsigned long long sum = 0;
  for (uint32_t i = 0; i < 20; ++i) {
    uint32_t* block;
    CHECK(cudaMalloc(&block, kWords * sizeof *block));
    fill_words<<<4, 128>>>(block, kWords, seed + i);
    std::vector<uint32_t> seen(kWords);
    CHECK(cudaMemcpy(seen.data(), block, kWords * sizeof *block, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(block));
    for (const uint32_t word : seen) sum += word;
  }
  return sum;
}

void child_of_initialised() {
  void* block = nullptr;
  const std::vector<int> numbers(100000, 1);
  const cudaError_t status = cudaMalloc(&block, 4096);
  std::printf("child: malloc works %d, cudaMalloc works %d\n", numbers.back() == 1,
              status == cudaSuccess);
}

}  // namespace

int main(int argc, char** argv) {
  const bool after = argc > 1 && std::strcmp(argv[1], "after") == 0;
  if (after) std::printf("parent first: sum %llu\n", work(1));
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    after ? child_of_initialised() : static_cast<void>(std::printf("child: sum %llu\n", work(2)));
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("child ended with %d\n", status);
  std::printf("parent: sum %llu\n", work(3));
  return 0;
}
