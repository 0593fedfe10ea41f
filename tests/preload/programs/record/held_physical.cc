// SPDX-License-Identifier: Apache-2.0
// Physical memory is live for whoever watches as long as a handle or a mapping holds it.
//
// Between the steps blocks of 1, 2, 3... MiB are allocated, for the order of events.
#include <cuda.h>

#include "../kinds.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kBytes = 8 * kMiB;

void mark() {
  static size_t marks = 0;
  CUdeviceptr block = 0;
  SAY(cuMemAlloc(&block, ++marks * kMiB));
}

}  // namespace

int main() {
  CUcontext context = nullptr;
  SAY(cuInit(0));
  SAY(cuDevicePrimaryCtxRetain(&context, 0));
  SAY(cuCtxSetCurrent(context));
  const CUmemAllocationProp properties = kinds::on_device(0);
  CUmemGenericAllocationHandle mapped = 0, unmapped = 0, again = 0, none = 0;
  CUdeviceptr at = 0;
  SAY(cuMemAddressReserve(&at, 4 * kBytes, 0, 0, 0));
  SAY(cuMemCreate(&mapped, kBytes, &properties, 0));
  SAY(cuMemMap(at, kBytes, 0, mapped, 0));
  SAY(cuMemMap(at + kBytes, kBytes, 0, mapped, 0));
  SAY(cuMemRelease(mapped));
  mark();  // 1: two mappings hold it
  SAY(cuMemCreate(&unmapped, 2 * kBytes, &properties, 0));
  SAY(cuMemRelease(unmapped));
  mark();  // 2: that one is gone
  SAY(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at)));
  SAY(cuMemUnmap(at, kBytes / 2));
  SAY(cuMemUnmap(at, 2 * kBytes));
  mark();  // 3: a handle holds it
  SAY(cuMemRelease(again));
  mark();  // 4: gone
  SAY(cuMemRelease(again));
  SAY(cuMemCreate(&none, kBytes + 1, &properties, 0));
  mark();  // 5
  SAY(cuMemCreate(&mapped, 3 * kBytes, &properties, 0));
  SAY(cuMemMap(at, 3 * kBytes, 0, mapped, 0));
  SAY(cuMemRelease(mapped));
  mark();                                                   // 6: stays for good
  SAY(cuMemCreate(&unmapped, 2 * kBytes, &properties, 0));  // and so does this
}
