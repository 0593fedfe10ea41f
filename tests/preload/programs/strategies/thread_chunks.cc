// SPDX-License-Identifier: Apache-2.0
// A pool for each thread; a dead thread's pool serves the next one.
// Threads come one after the other, and two at once; blocks of one are freed by another, and go
// back to where they came from. On one processor, so that the sizes of chunks are the same on every
// machine.

#include <sched.h>

#include <thread>

#include "../driver_codes.h"

namespace {

CUcontext context = nullptr;

void use_one_processor() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int cpu = 0;
  while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &allowed)) ++cpu;
  CPU_ZERO(&allowed);
  CPU_SET(cpu, &allowed);
  sched_setaffinity(0, sizeof allowed, &allowed);
}

// One thread's life: takes two blocks and frees one of them and `other`; the second is left.
CUdeviceptr live(CUdeviceptr other) {
  CUdeviceptr left = 0;
  std::thread([&] {
    cuCtxSetCurrent(context);
    CUdeviceptr own = 0;
    int failures = cuMemAlloc(&own, 3 * kMiB) != CUDA_SUCCESS;
    failures += cuMemAlloc(&left, 2 * kMiB) != CUDA_SUCCESS;
    failures += cuMemsetD8(own, 1, 3 * kMiB) != CUDA_SUCCESS;
    failures += cuMemFree(own) != CUDA_SUCCESS;
    failures += other != 0 && cuMemFree(other) != CUDA_SUCCESS;
    failures += cuCtxSynchronize() != CUDA_SUCCESS;
    std::printf("a thread: %d failures\n", failures);
  }).join();
  return left;
}

}  // namespace

int main() {
  use_one_processor();
  context = use_device(0);
  CUdeviceptr left = 0, mine = 0;
  for (int i = 0; i < 20; ++i) left = live(left);
  SAY(cuMemAlloc(&mine, kMiB));
  left = live(left);
  SAY(cuMemFree(left));
  SAY(cuMemFree(mine));
  SAY(cuMemFree(mine));
  return 0;
}
