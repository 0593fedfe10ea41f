// SPDX-License-Identifier: Apache-2.0
// A device is reset again and again while other threads have its primary context current.
// Their calls fail, or find the next context before the call that began it has returned.

#include <atomic>
#include <thread>
#include <vector>

#include "../driver_codes.h"

namespace {

std::atomic<bool> g_over{false};

void ask_again_and_again(CUcontext primary) {
  while (!g_over) {
    size_t free, total;
    cuCtxSetCurrent(primary);
    cuMemGetInfo(&free, &total);
  }
}

}  // namespace

int main() {
  CUcontext primary = use_device(0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(ask_again_and_again, primary);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    refused += cuDevicePrimaryCtxReset(0) != CUDA_SUCCESS;
    refused += cuDevicePrimaryCtxRetain(&primary, 0) != CUDA_SUCCESS;
  }
  g_over = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("calls refused: %d\n", refused);
  use_device(0);
  allocate_and_free(100, 3 * kMiB);
  return 0;
}
