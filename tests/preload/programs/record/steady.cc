// SPDX-License-Identifier: Apache-2.0
// Many threads allocate and free while somebody watches, also where the process forks.
//
// Usage: steady THREADS PAIRS (0: until it is killed) [fork]
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

std::atomic<unsigned long> failed{0};

void work(CUcontext context, int thread, unsigned long pairs) {
  cuCtxSetCurrent(context);
  for (unsigned long i = 0; pairs == 0 || i < pairs; ++i) {
    CUdeviceptr block = 0;
    const size_t bytes = 512 * (1 + static_cast<size_t>(thread)) + i % 512;
    failed += cuMemAlloc(&block, bytes) != CUDA_SUCCESS;
    failed += cuMemFree(block) != CUDA_SUCCESS;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  CUcontext context = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) return 1;
  const unsigned long pairs = std::strtoul(argv[2], nullptr, 10);
  std::vector<std::thread> threads;
  for (int i = 0; i < std::atoi(argv[1]); ++i) threads.emplace_back(work, context, i, pairs);
  if (argc > 3) {
    const pid_t child = fork();
    if (child == 0) {
      CUdeviceptr block = 0;
      cuMemAlloc(&block, 4096);  // the driver does not work here
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    std::printf("child %d\n", status);
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("failed %lu\n", failed.load());
}
