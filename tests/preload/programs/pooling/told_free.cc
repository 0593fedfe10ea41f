// SPDX-License-Identifier: Apache-2.0
// What is allocated is not told as free, whatever other threads move meanwhile.

#include <atomic>
#include <thread>
#include <vector>

#include "../check.h"
#include "../driver_codes.h"

namespace {

constexpr size_t kKept = 4 * kMiB;
constexpr int kThreads = 6, kQuestions = 1000;

std::atomic<bool> g_over{false};

void come_and_go(unsigned seed) {
  use_device(0);
  Random random(seed);
  while (!g_over) {
    CUdeviceptr block = 0;
    cuMemAlloc(&block, (1 + random.below(40)) * kMiB);
    cuMemFree(block);
  }
}

}  // namespace

int main() {
  use_device(0);
  CUdeviceptr kept = 0;
  SAY(cuMemAlloc(&kept, kKept));
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(come_and_go, i);
  int too_much = 0;
  for (int i = 0; i < kQuestions; ++i) {
    size_t free_bytes = 0, total = 0;
    cuMemGetInfo(&free_bytes, &total);
    if (free_bytes > total - kKept) ++too_much;
  }
  g_over = true;
  for (std::thread& thread : threads) thread.join();
  SAY(cuMemFree(kept));
  std::printf("told more than can be free: %d times\n", too_much);
  return 0;
}
