// SPDX-License-Identifier: Apache-2.0
// A context is destroyed with work pending; what its pool kept serves another thread.
// The context has freed what it had; the other thread asks for that memory in another context.

#include <atomic>
#include <chrono>
#include <thread>

#include "../driver_codes.h"

namespace {

std::atomic<bool> g_running{false};

// The work the destruction waits for: long enough for the other thread to ask meanwhile.
void work(void*) {
  g_running = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
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
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
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
