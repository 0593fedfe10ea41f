// SPDX-License-Identifier: Apache-2.0
// Blocks that take the place of freed ones, of the same size and of another.
#include <cuda.h>

#include "../driver_codes.h"

int main() {
  CUcontext context = nullptr;
  CUdeviceptr block = 0;
  SAY(cuInit(0));
  SAY(cuDevicePrimaryCtxRetain(&context, 0));
  SAY(cuCtxSetCurrent(context));
  constexpr size_t kSizes[] = {4000, 4000, 3000, 9000};
  for (const size_t bytes : kSizes) {
    SAY(cuMemAlloc(&block, bytes));
    SAY(cuMemFree(block));
    SAY(cuCtxSynchronize());
  }
}
