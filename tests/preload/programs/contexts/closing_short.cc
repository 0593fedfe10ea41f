// SPDX-License-Identifier: Apache-2.0
// A context is destroyed with work pending; what its pool kept serves another thread.
// The context has freed what it had; the other thread asks for that memory in another context.

#include <atomic>
#include <thread>

#include "../driver_codes.h"
#include "../watch_time.h"

namespace {

std::atomic<bool> g_running{false}, g_asks{false};

// The work the destruction waits for: until the other thread asks, and waits for what it asks for
// or has it.
void work(void*) {
  g_running = true;
  while (!g_asks) usleep(100);
}

}  // namespace

int main() {
  end_if_it_hangs();
  const std::atomic<pid_t> here{gettid()};
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
    await_sleep(here);
    const OnceThisWaits asks(&g_asks);
    allocated = cuMemAlloc(&other, 50 * kMiB);
  });
  SAY(cuLaunchHostFunc(stream, work, nullptr));
  SAY(cuCtxDestroy(own));
  thread.join();
  std::printf("entered %d, allocated %d\n", entered, allocated);
  SAY(cuCtxSetCurrent(primary));
  SAY(cuMemFree(other));
  return 0;
}
