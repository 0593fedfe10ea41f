// SPDX-License-Identifier: Apache-2.0
// A capture begins while a thread runs out of memory: what the pool keeps still serves that one.
// A thread needs all the memory there is, in other sizes than before; while it asks, another thread
// begins a capture, in a mode that forbids others nothing, and ends it after that. What the pools
// keep has to serve all the same. The wait hits the driver's allocation where that is slow.

#include <atomic>
#include <thread>

#include "../asleep.h"
#include "../driver_codes.h"

namespace {

constexpr int kRounds = 5;
constexpr size_t kAll = 60 * kMiB;

std::atomic<int> g_asking{0}, g_done{0};
Waiter g_allocating;

int capture_meanwhile(CUcontext context) {
  int failures = 0;
  const auto need = [&](CUresult code) { failures += code != CUDA_SUCCESS ? 1 : 0; };
  CUstream stream = nullptr;
  need(cuCtxSetCurrent(context));
  need(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int round = 1; round <= kRounds; ++round) {
    CUgraph graph = nullptr;
    while (g_asking < round) std::this_thread::yield();
    g_allocating.until_asleep();
    need(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    while (g_done < round) std::this_thread::yield();
    need(cuStreamEndCapture(stream, &graph));
    need(cuGraphDestroy(graph));
  }
  return failures;
}

// Halves, freed, then the whole.
int use_all(int round) {
  int failures = 0;
  const auto need = [&](CUresult code) { failures += code != CUDA_SUCCESS ? 1 : 0; };
  CUdeviceptr halves[2] = {}, whole = 0;
  for (CUdeviceptr& half : halves) need(cuMemAlloc(&half, kAll / 2));
  for (const CUdeviceptr half : halves) need(cuMemFree(half));
  g_allocating.begins();
  g_asking = round;
  need(cuMemAlloc(&whole, kAll));
  g_allocating.ends();
  g_done = round;
  need(cuMemFree(whole));
  return failures;
}

}  // namespace

int main() {
  const CUcontext context = use_device(0);
  int captures = 0, allocations = 0;
  std::thread other([&] { captures = capture_meanwhile(context); });
  for (int round = 1; round <= kRounds; ++round) allocations += use_all(round);
  other.join();
  std::printf("failures: captures %d, allocations %d\n", captures, allocations);
  return 0;
}
