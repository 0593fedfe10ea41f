// SPDX-License-Identifier: Apache-2.0
// All memory is free again once everything was freed, whatever it was cut from.
// Blocks of many sizes are taken by the main thread and by others, freed in another order and
// synchronised: the free memory that is told then is what was told before the first block.
//
//   free_again          on the processors the process may use
//   free_again N        on the first N of them: thread_local divides its chunks by their number

#include <sched.h>

#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "../driver_codes.h"

namespace {

void use_processors(int wanted) {
  cpu_set_t allowed, used;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  CPU_ZERO(&used);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&used) < wanted; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &used);
  }
  sched_setaffinity(0, sizeof used, &used);
}

std::vector<CUdeviceptr> take(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 60; ++i) {
    const size_t most = size_t{512} << random() % 13;
    CUdeviceptr block = 0;
    if (cuMemAlloc(&block, 1 + random() % most) == CUDA_SUCCESS) blocks.push_back(block);
  }
  return blocks;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) use_processors(std::atoi(argv[1]));
  CUcontext context = use_device(0);
  const size_t before = free_memory();
  for (unsigned round = 0; round < 3; ++round) {
    std::vector<std::vector<CUdeviceptr>> taken(4);
    for (unsigned i = 0; i < taken.size(); ++i) {
      std::thread([&] {
        cuCtxSetCurrent(context);
        taken[i] = take(10 * round + i);
      }).join();
    }
    taken.push_back(take(round));
    size_t failed = 0;
    for (const auto& blocks : taken) {
      for (const CUdeviceptr block : blocks) failed += cuMemFree(block) != CUDA_SUCCESS;
    }
    SAY(cuCtxSynchronize());
    const size_t after = free_memory();
    std::printf("%zu failures, %lld bytes are missing\n", failed,
                static_cast<long long>(before - after));
  }
  return 0;
}
