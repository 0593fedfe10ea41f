// SPDX-License-Identifier: Apache-2.0
// What the pool keeps is there for every other kind of memory, and for other contexts.
// Most of the device is freed, and then asked for in other ways than cuMemAlloc. The first argument
// says whether the program synchronises in between.

#include <cstring>
#include <initializer_list>

#include "../driver_codes.h"

namespace {

constexpr size_t kMost = 200 * kMiB;

void pitched() {
  CUdeviceptr block = 0;
  size_t pitch;
  SAY(cuMemAllocPitch(&block, &pitch, kMiB, kMost / kMiB, 4));
  SAY(cuMemFree(block));
}

void managed() {
  CUdeviceptr block = 0;
  SAY(cuMemAllocManaged(&block, kMost, CU_MEM_ATTACH_GLOBAL));
  SAY(cuMemFree(block));
}

void stream_ordered() {
  CUdeviceptr block = 0;
  SAY(cuMemAllocAsync(&block, kMost, nullptr));
  SAY(cuMemFreeAsync(block, nullptr));
  SAY(cuCtxSynchronize());
}

void physical() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  SAY(cuMemCreate(&handle, kMost, &properties, 0));
  SAY(cuMemRelease(handle));
}

void of_another_context() {
  CUcontext own = nullptr, other = nullptr;
  CUdeviceptr block = 0;
  SAY(cuCtxGetCurrent(&own));
  SAY(cuCtxCreate(&other, nullptr, 0, 0));
  SAY(cuMemAlloc(&block, kMost));
  SAY(cuMemFree(block));
  SAY(cuCtxSetCurrent(own));
  SAY(cuMemAlloc(&block, kMost));
  SAY(cuMemFree(block));
  SAY(cuCtxDestroy(other));
  SAY(cuCtxSetCurrent(own));
}

}  // namespace

int main(int argc, char** argv) {
  const bool synchronise = argc > 1 && std::strcmp(argv[1], "synchronised") == 0;
  use_device(0);
  for (const auto ask : {pitched, managed, stream_ordered, physical, of_another_context}) {
    CUdeviceptr block = 0;
    SAY(cuMemAlloc(&block, kMost));
    SAY(cuMemFree(block));
    if (synchronise) SAY(cuCtxSynchronize());
    ask();
  }
  return 0;
}
