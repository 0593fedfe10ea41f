// SPDX-License-Identifier: Apache-2.0
// Blocks that take the place of freed ones, of the same size and of another.
// With "given_back" the second block has no place beside the first, whose memory goes back first.
#include <cuda.h>

#include <vector>

#include "../driver_codes.h"

int main(int argc, char**) {
  CUcontext context = nullptr;
  CUdeviceptr block = 0;
  SAY(cuInit(0));
  SAY(cuDevicePrimaryCtxRetain(&context, 0));
  SAY(cuCtxSetCurrent(context));
  std::vector<size_t> sizes{4000, 4000, 3000, 9000};
  if (argc > 1) sizes = {40 * kMiB, 48 * kMiB};
  for (const size_t bytes : sizes) {
    SAY(cuMemAlloc(&block, bytes));
    SAY(cuMemFree(block));
    SAY(cuCtxSynchronize());
  }
}
