// SPDX-License-Identifier: Apache-2.0
// A context is destroyed with work pending; what its pool kept serves another thread.
// The context has freed what it had; the other thread asks for that memory in another context.

#include <atomic>
#include <thread>

#include "../asleep.h"
#include "../driver_codes.h"

namespace {

std::atomic<bool> g_running{false};
Waiter g_destroying, g_asking;

// The work the destruction waits for. It ends when the other thread has asked meanwhile, and has
// what it asked for or waits for that.
void work(void*) {
  g_destroying.until_asleep();
  g_running = true;
  g_asking.until_asleep();
}

}  // namespace

int main() {
  const CUcontext primary = use_device(0);
  CUcontext own = nullptr;
  CUdeviceptr block = 0, other = 0;
  CUstream stream = nullptr;
  SAY(cuCtxCreate(&own, nullptr, 0, 0));
  SAY(cuMemAlloc(&block, 30 * kMiB));
  SAY(cuMemFree(block));
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUresult entered = CUDA_ERROR_UNKNOWN, allocated = CUDA_ERROR_UNKNOWN;
  std::thread thread([&] {
    entered = cuCtxSetCurrent(primary);
    while (!g_running) std::this_thread::yield();
    g_asking.begins();
    allocated = cuMemAlloc(&other, 50 * kMiB);
    g_asking.ends();
  });
  SAY(cuLaunchHostFunc(stream, work, nullptr));
  g_destroying.begins();
  SAY(cuCtxDestroy(own));
  g_destroying.ends();
  thread.join();
  std::printf("entered %d, allocated %d\n", entered, allocated);
  SAY(cuCtxSetCurrent(primary));
  SAY(cuMemFree(other));
  return 0;
}
