// SPDX-License-Identifier: Apache-2.0
// Many threads allocate and free while somebody watches, also where the process forks.
//
// Usage: steady THREADS PAIRS [fork | BYTES that a file of it may have from now on]
// PAIRS 0: ten thousand a second, until it is killed.
#include <cuda.h>
#include <sys/resource.h>
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
    if (pairs == 0) usleep(100);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  CUcontext context = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) return 1;
  const unsigned long pairs = std::strtoul(argv[2], nullptr, 10);
  const bool forks = argc > 3 && std::strcmp(argv[3], "fork") == 0;
  if (argc > 3 && !forks) {
    const rlim_t bytes = std::strtoul(argv[3], nullptr, 10);
    const rlimit limit{bytes, bytes};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < std::atoi(argv[1]); ++i) threads.emplace_back(work, context, i, pairs);
  if (forks) {
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
