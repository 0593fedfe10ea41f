// SPDX-License-Identifier: Apache-2.0
// A capture does not wait for idle memory that goes back to a busy device.
// One thread allocates when memory is short and may wait for the device, which waits for another
// thread, which begins a capture first.

#include <atomic>
#include <chrono>
#include <thread>

#include "../asleep.h"
#include "../driver_codes.h"

namespace {

std::atomic<bool> g_go{false};
std::atomic<bool> g_gave_up{false};
Waiter g_allocating;

// Stands for a kernel that spins on a flag of the host; it gives up, to end a program that hangs,
// right before the test's own limit.
void spin(void*) {
  constexpr int kPatienceMs = 100'000;
  for (int i = 0; i < kPatienceMs && !g_go; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!g_go) g_gave_up = true;
}

}  // namespace

int main() {
  CUcontext context = use_device(0);
  CUstream working, captured;
  SAY(cuStreamCreate(&working, CU_STREAM_NON_BLOCKING));
  SAY(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
  CUdeviceptr first = 0;
  SAY(cuMemAlloc(&first, 60 * kMiB));
  SAY(cuMemFree(first));
  SAY(cuCtxSynchronize());
  SAY(cuLaunchHostFunc(working, spin, nullptr));
  // Only what was freed makes room for this: a pool has to give it back, and the driver waits.
  std::thread allocating([&] {
    CUdeviceptr large = 0;
    cuCtxSetCurrent(context);
    g_allocating.begins();
    const CUresult code = cuMemAlloc(&large, 220 * kMiB);
    g_allocating.ends();
    std::printf("allocated %d, freed %d\n", code, cuMemFree(large));
  });
  g_allocating.until_asleep();
  CUgraph graph = nullptr;
  const CUresult begun = cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED);
  g_go = true;
  allocating.join();
  std::printf("capture begun %d\n", begun);
  SAY(cuStreamEndCapture(captured, &graph));
  SAY(cuGraphDestroy(graph));
  std::printf("the capture waited for the device: %d\n", g_gave_up.load());
  SAY(cuCtxSynchronize());
  allocate_and_free(100, 10 * kMiB);
  return 0;
}
