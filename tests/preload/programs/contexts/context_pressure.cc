// SPDX-License-Identifier: Apache-2.0
// Contexts end while a thread runs out of memory and has the pools return what they keep.
// One thread creates contexts, uses them and destroys them; another asks for more than its device
// has meanwhile, so that whatever is kept idle anywhere on the device is wanted back.

#include <atomic>
#include <thread>

#include "../driver_codes.h"

namespace {

constexpr int kContexts = 60;
constexpr int kBlocks = 6;

std::atomic<bool> g_done{false};

// Failures of one context's life.
int live_and_die() {
  int failures = 0;
  const auto need = [&](CUresult code) { failures += code != CUDA_SUCCESS ? 1 : 0; };
  CUcontext context;
  CUdeviceptr blocks[kBlocks] = {};
  need(cuCtxCreate(&context, nullptr, 0, 0));
  for (CUdeviceptr& block : blocks) need(cuMemAlloc(&block, 2 * kMiB));
  for (const CUdeviceptr block : blocks) need(cuMemsetD8Async(block, 1, 2 * kMiB, nullptr));
  for (const CUdeviceptr block : blocks) need(cuMemFree(block));
  need(cuCtxSynchronize());
  need(cuCtxDestroy(context));
  return failures;
}

// All of the device, while the program holds some of it.
void ask_too_much(CUcontext context, int* unexpected) {
  size_t total = 0;
  cuCtxSetCurrent(context);
  cuDeviceTotalMem(&total, 0);
  while (!g_done) {
    CUdeviceptr block = 0;
    *unexpected += cuMemAlloc(&block, total) != CUDA_ERROR_OUT_OF_MEMORY ? 1 : 0;
  }
}

}  // namespace

int main() {
  const CUcontext primary = use_device(0);
  CUdeviceptr held = 0;
  SAY(cuMemAlloc(&held, kMiB));
  int unexpected = 0, failures = 0;
  std::thread other([&] { ask_too_much(primary, &unexpected); });
  for (int i = 0; i < kContexts; ++i) failures += live_and_die();
  g_done = true;
  other.join();
  std::printf("failures %d, unexpected answers %d\n", failures, unexpected);
  size_t free_bytes = 0, total = 0;
  SAY(cuCtxSetCurrent(primary));
  SAY(cuMemFree(held));
  SAY(cuCtxSynchronize());
  SAY(cuMemGetInfo(&free_bytes, &total));
  std::printf("all free again %d\n", free_bytes == total);
  return 0;
}
