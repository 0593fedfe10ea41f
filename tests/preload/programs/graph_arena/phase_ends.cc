// SPDX-License-Identifier: Apache-2.0
// Rounds that nobody marks: each takes 20 MiB in blocks, gives all of it back, and waits for the
// device.
//
// phase_ends HOW ROUNDS: HOW is how they go back:
//   freed       cuMemFree
//   ordered     cuMemFreeAsync, of cuMemAlloc's memory
//   wrongly     cuMemFree, after frees that are refused
//   destroyed   with the context that they are in
//   pinned      of pinned memory, cuMemFreeHost
#include <cstdlib>
#include <cstring>

#include "../driver_codes.h"

namespace {

constexpr int kBlocks = 5;
int failures = 0;

void need(CUresult code, CUresult wanted = CUDA_SUCCESS) { failures += code == wanted ? 0 : 1; }

void allocate(CUdeviceptr (&blocks)[kBlocks]) {
  for (CUdeviceptr& block : blocks) {
    need(cuMemAlloc(&block, 4 * kMiB));
    need(cuMemsetD8(block, 1, 4 * kMiB));
  }
}

void round_of_blocks(const char* how) {
  CUdeviceptr blocks[kBlocks];
  allocate(blocks);
  for (const CUdeviceptr block : blocks) {
    if (std::strcmp(how, "ordered") == 0) {
      need(cuMemFreeAsync(block, nullptr));
      continue;
    }
    if (std::strcmp(how, "wrongly") == 0) need(cuMemFree(block + 256), CUDA_ERROR_INVALID_VALUE);
    need(cuMemFree(block));
    if (std::strcmp(how, "wrongly") == 0) need(cuMemFree(block), CUDA_ERROR_INVALID_VALUE);
  }
}

void round_of_context(CUcontext own, CUdevice device) {
  CUcontext context;
  need(cuCtxCreate(&context, nullptr, 0, device));
  CUdeviceptr blocks[kBlocks];
  allocate(blocks);
  need(cuCtxDestroy(context));
  need(cuCtxSetCurrent(own));
}

void round_of_pinned() {
  void* blocks[kBlocks];
  for (void*& block : blocks) need(cuMemAllocHost(&block, 4 * kMiB));
  for (void* block : blocks) need(cuMemFreeHost(block));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  CUdevice device;
  CUcontext context;
  need(cuInit(0));
  need(cuDeviceGet(&device, 0));
  need(cuDevicePrimaryCtxRetain(&context, device));
  need(cuCtxSetCurrent(context));
  for (int i = 0; i < std::atoi(argv[2]); ++i) {
    if (std::strcmp(argv[1], "destroyed") == 0) {
      round_of_context(context, device);
    } else if (std::strcmp(argv[1], "pinned") == 0) {
      round_of_pinned();
    } else {
      round_of_blocks(argv[1]);
    }
    need(cuCtxSynchronize());
  }
  CUdeviceptr last;  // of the last phase
  need(cuMemAlloc(&last, kMiB));
  need(cuMemFree(last));
  need(cuDevicePrimaryCtxRelease(device));
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
