// SPDX-License-Identifier: Apache-2.0
// Retained and released by turns, a new primary context under the old handle has its own memory.
// Threads that know nothing of each other retain the primary context for as long as they need it.
// The last release of one and the retain of another meet in whichever order: to the second the
// context may be a new one under the old handle, with none of the old one's memory.

#include <atomic>
#include <thread>

#include "../driver_codes.h"

namespace {

int failed(CUresult code) { return code != CUDA_SUCCESS ? 1 : 0; }

// How many calls of one turn failed.
int turn() {
  constexpr size_t kBytes = 4096;
  CUcontext context;
  CUdeviceptr block = 0;
  unsigned last = 0;
  int failures = failed(cuDevicePrimaryCtxRetain(&context, 0));
  failures += failed(cuCtxSetCurrent(context));
  failures += failed(cuMemAlloc(&block, kBytes));
  failures += failed(cuMemsetD32(block, 7, kBytes / 4));
  failures += failed(cuMemcpyDtoH(&last, block + kBytes - 4, 4));
  failures += failed(cuMemFree(block));
  failures += failed(cuCtxSetCurrent(nullptr));
  failures += failed(cuDevicePrimaryCtxRelease(0));
  return failures + (last != 7 ? 1 : 0);
}

}  // namespace

int main() {
  constexpr int kTurns = 10000;
  std::atomic<int> failures{failed(cuInit(0))};
  const auto turns = [&failures] {
    for (int i = 0; i < kTurns; ++i) failures += turn();
  };
  std::thread other(turns);
  turns();
  other.join();
  std::printf("%d failures\n", failures.load());
  return 0;
}
