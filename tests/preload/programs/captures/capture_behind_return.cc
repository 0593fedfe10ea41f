// SPDX-License-Identifier: Apache-2.0
// A capture does not wait for idle memory that goes back to a busy device.
// One thread allocates when memory is short and may wait for the device, which waits for another
// thread, which begins a capture first.

#include <unistd.h>

#include <atomic>
#include <thread>

#include "../driver_codes.h"
#include "../watch_time.h"

namespace {

std::atomic<bool> g_go{false};
std::atomic<pid_t> g_allocating{0};

// Stands for a kernel that spins on a flag of the host. A capture that waits for it hangs.
void spin(void*) {
  while (!g_go) usleep(100);
}

}  // namespace

int main() {
  end_if_it_hangs();
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
    g_allocating = gettid();
    const CUresult code = cuMemAlloc(&large, 220 * kMiB);
    std::printf("allocated %d, freed %d\n", code, cuMemFree(large));
  });
  await_sleep(g_allocating);
  CUgraph graph = nullptr;
  const CUresult begun = cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED);
  g_go = true;
  allocating.join();
  std::printf("capture begun %d\n", begun);
  SAY(cuStreamEndCapture(captured, &graph));
  SAY(cuGraphDestroy(graph));
  SAY(cuCtxSynchronize());
  allocate_and_free(100, 10 * kMiB);
  return 0;
}
