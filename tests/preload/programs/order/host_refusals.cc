// SPDX-License-Identifier: Apache-2.0
// Host functions that call CUDA all the same: all are refused, nothing is lost, nothing waits.
// The driver refuses each call; what they tried to free is still there afterwards, and what they
// tried to allocate is not. Meanwhile the main thread frees, synchronises and captures.

#include <atomic>
#include <initializer_list>
#include <thread>

#include "../driver_codes.h"

namespace {

constexpr size_t kSmall = 3000, kLarge = 6 * kMiB;

CUdeviceptr g_small, g_large;
std::atomic<bool> g_done{false};

void try_all() {
  CUdeviceptr block = 0;
  size_t bytes, total;
  CUgraph graph;
  CUipcMemHandle handle;
  CUcontext context;
  for (const size_t size : {kSmall, kLarge, 40 * kMiB}) SAY(cuMemAlloc(&block, size));
  for (const CUdeviceptr held : {g_small, g_large}) {
    SAY(cuMemFree(held));
    SAY(cuMemFree(held + 8));
    SAY(cuMemFreeAsync(held, nullptr));
    SAY(cuMemGetAddressRange(&block, &bytes, held));
  }
  SAY(cuIpcGetMemHandle(&handle, g_large));
  SAY(cuMemGetInfo(&bytes, &total));
  SAY(cuCtxSynchronize());
  SAY(cuStreamSynchronize(nullptr));
  SAY(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SAY(cuStreamEndCapture(nullptr, &graph));
  SAY(cuDevicePrimaryCtxRetain(&context, 0));
  SAY(cuDevicePrimaryCtxReset(0));
  SAY(cuCtxDestroy(nullptr));
  g_done = true;
}

void CUDA_CB host_function(void*) { try_all(); }

void CUDA_CB stream_callback(CUstream, CUresult status, void*) {
  std::printf("status %d\n", status);
  try_all();
}

// Clean and waiting memory for the host function to find, if it could.
void warm_up() {
  CUdeviceptr blocks[20];
  for (int i = 0; i < 20; ++i) cuMemAlloc(&blocks[i], i % 2 != 0 ? kSmall : kLarge);
  for (const CUdeviceptr block : blocks) cuMemFree(block);
}

void outlive(size_t free_before) {
  unsigned char byte = 0;
  size_t free_after = 0, total;
  for (const CUdeviceptr held : {g_small, g_large}) {
    SAY(cuMemsetD8(held, 7, kSmall));
    SAY(cuMemcpyDtoH(&byte, held + kSmall - 1, 1));
    std::printf("holds %d\n", byte);
  }
  SAY(cuMemGetInfo(&free_after, &total));
  std::printf("memory info the same %d\n", free_after == free_before);
  SAY(cuMemFree(g_small));
  SAY(cuMemFree(g_large));
}

// Calls that wait for the host function, while it waits for nothing.
int use_meanwhile(CUcontext context) {
  int failures = cuCtxSetCurrent(context) != CUDA_SUCCESS ? 1 : 0;
  for (int i = 0; i < 50 || !g_done; ++i) {
    CUdeviceptr block = 0;
    failures += cuMemAlloc(&block, (1 + i % 7) * kMiB) != CUDA_SUCCESS ? 1 : 0;
    failures += cuMemFree(block) != CUDA_SUCCESS ? 1 : 0;
    if (i % 10 == 9) failures += cuCtxSynchronize() != CUDA_SUCCESS ? 1 : 0;
  }
  return failures;
}

void round(CUcontext context, CUstream stream, bool callback, bool busy) {
  size_t free_before = 0, total;
  g_done = false;
  SAY(cuMemAlloc(&g_small, kSmall));
  SAY(cuMemAlloc(&g_large, kLarge));
  warm_up();
  SAY(cuMemGetInfo(&free_before, &total));
  callback ? cuStreamAddCallback(stream, stream_callback, nullptr, 0)
           : cuLaunchHostFunc(stream, host_function, nullptr);
  int failures = 0;
  std::thread other([&] { failures = busy ? use_meanwhile(context) : 0; });
  other.join();
  cuStreamSynchronize(stream);
  std::printf("meanwhile %d failures\n", failures);
  outlive(free_before);
}

}  // namespace

int main() {
  CUcontext context = use_device(0);
  CUstream stream;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (const bool busy : {false, true}) {
    round(context, stream, false, busy);
    round(context, stream, true, busy);
  }
  allocate_and_free(100, kSmall);
  return 0;
}
