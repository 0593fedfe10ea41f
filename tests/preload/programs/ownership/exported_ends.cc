// SPDX-License-Identifier: Apache-2.0
// A context ends after the last block of an exported slab was freed.
// Small blocks become known outside the process, are freed, and their context ends: each way of
// ending it returns, and all memory is free again.

#include "../driver_codes.h"

namespace {

// The last block of a slab that holds others, and one that is alone in it.
void export_and_free() {
  const unsigned set = 1;
  CUdeviceptr blocks[3] = {};
  for (CUdeviceptr& block : blocks) SAY(cuMemAlloc(&block, 3000));
  SAY(cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, blocks[1]));
  for (const CUdeviceptr block : blocks) SAY(cuMemFree(block));
  SAY(cuMemAlloc(&blocks[0], 3000));
  SAY(cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, blocks[0]));
  SAY(cuMemFree(blocks[0]));
}

}  // namespace

int main() {
  const CUcontext primary = use_device(0);
  size_t before = 0, after = 0, total = 0;
  SAY(cuMemGetInfo(&before, &total));
  CUcontext own = nullptr;
  SAY(cuCtxCreate(&own, nullptr, 0, 0));
  export_and_free();
  SAY(cuCtxDestroy(own));
  SAY(cuCtxSetCurrent(primary));
  export_and_free();
  SAY(cuDevicePrimaryCtxReset(0));
  use_device(0);
  export_and_free();
  SAY(cuMemGetInfo(&after, &total));
  std::printf("all free again %d\n", before == after);
  SAY(cuDevicePrimaryCtxRelease(0));
  return 0;
}
