// SPDX-License-Identifier: Apache-2.0
// Under a cap as many small blocks of pitched memory fit as on a device of that size.
// Blocks of 700 KiB until memory is out; every other one is freed and allocated anew; what is left
// serves smaller ones.
#include <vector>

#include "../driver_codes.h"

namespace {

constexpr size_t kRow = 512, kRows = 1400, kFewRows = 300;

CUresult allocate(CUdeviceptr* block, size_t rows) {
  size_t pitch;
  return cuMemAllocPitch(block, &pitch, kRow, rows, 4);
}

// Until memory is out.
size_t fill(std::vector<CUdeviceptr>* blocks, size_t rows) {
  const size_t before = blocks->size();
  for (CUdeviceptr block; allocate(&block, rows) == CUDA_SUCCESS;) blocks->push_back(block);
  return blocks->size() - before;
}

}  // namespace

int main() {
  CUdevice device;
  CUcontext context;
  SAY(cuInit(0));
  SAY(cuDeviceGet(&device, 0));
  SAY(cuDevicePrimaryCtxRetain(&context, device));
  SAY(cuCtxSetCurrent(context));
  std::vector<CUdeviceptr> blocks, rest;
  std::printf("%zu blocks\n", fill(&blocks, kRows));
  for (size_t i = 0; i < blocks.size(); i += 2) {
    if (cuMemFree(blocks[i]) == CUDA_SUCCESS) blocks[i] = 0;
  }
  std::printf("%zu again\n", fill(&rest, kRows));
  std::printf("%zu smaller ones\n", fill(&rest, kFewRows));
  CUdeviceptr untouched = 1;
  std::printf("then %d, address %s\n", allocate(&untouched, kRows),
              untouched == 1 ? "untouched" : "CHANGED");
  int failed = 0;
  for (const CUdeviceptr block : blocks) failed += block != 0 && cuMemFree(block) != CUDA_SUCCESS;
  for (const CUdeviceptr block : rest) failed += cuMemFree(block) != CUDA_SUCCESS;
  blocks.clear();
  std::printf("%d frees failed; %zu blocks again\n", failed, fill(&blocks, kRows));
  SAY(cuDevicePrimaryCtxRelease(device));
}
