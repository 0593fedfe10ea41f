// SPDX-License-Identifier: Apache-2.0
// A thread that is cancelled while it allocates and frees leaves nothing half done.
// Threads use most of a small device under kernels that take a while, and are cancelled at any
// moment; each ends between two rounds, where it says that it may. Afterwards everything is free,
// and what there is not is refused as quickly as before.

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "../driver_codes.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

constexpr int kCancelled = 40;
constexpr size_t kBytes = 24 * kMiB;

struct Shared {
  CUcontext context;
  const timed::Kernels* kernels;
  CUstream stream;
  std::atomic<int> rounds{0};
};

void* work(void* argument) {
  auto* shared = static_cast<Shared*>(argument);
  MUST(cuCtxSetCurrent(shared->context));
  while (true) {
    CUdeviceptr blocks[3] = {};
    for (CUdeviceptr& block : blocks) {
      // Others may have it all: then without.
      if (cuMemAlloc(&block, kBytes) != CUDA_SUCCESS) continue;
      MUST(timed::fill_words(*shared->kernels, shared->stream, block, 64, 1, 3'000));
    }
    for (const CUdeviceptr block : blocks) {
      if (block != 0) MUST(cuMemFree(block));
    }
    ++shared->rounds;
    pthread_testcancel();
  }
}

bool refused_quickly() {
  const Naps naps;
  CUdeviceptr block = 0;
  const CUresult code = cuMemAlloc(&block, size_t{1} << 40);
  const CUresult large = cuMemAlloc(&block, 250 * kMiB);
  return code == CUDA_ERROR_OUT_OF_MEMORY && large == CUDA_ERROR_OUT_OF_MEMORY && naps.few(250);
}

}  // namespace

int main() {
  end_if_it_hangs();
  Shared shared{use_device(0), nullptr, nullptr};
  const timed::Kernels kernels;
  shared.kernels = &kernels;
  shared.stream = timed::new_stream();
  const size_t free_at_first = free_memory();
  for (int i = 0; i < kCancelled; ++i) {
    pthread_t threads[4];
    for (pthread_t& thread : threads) pthread_create(&thread, nullptr, work, &shared);
    std::this_thread::sleep_for(std::chrono::milliseconds(1 + i % 20));
    for (const pthread_t thread : threads) pthread_cancel(thread);
    for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  }
  MUST(cuCtxSynchronize());
  CUdeviceptr held = 0;
  MUST(cuMemAlloc(&held, 16 * kMiB));
  std::printf("rounds were done: %d\n", shared.rounds > 0);
  std::printf("refused quickly: %d\n", refused_quickly());
  MUST(cuMemFree(held));
  std::printf("as much is free as at first: %d\n", free_memory() == free_at_first);
  CUdeviceptr all = 0;
  std::printf("all of it in one block: %d\n", cuMemAlloc(&all, free_at_first));
  MUST(cuMemFree(all));
  return 0;
}
