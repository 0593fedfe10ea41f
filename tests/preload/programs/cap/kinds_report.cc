// SPDX-License-Identifier: Apache-2.0
// What the report says by kind of memory.
// Takes some of every kind of memory of a capped device, more than there is, and keeps half of it.

#include "../kinds.h"

int main() {
  use_device(0);
  for (const Kind& kind : kinds::kAll) {
    Piece piece;
    SAY(allocate(kind, &piece, 4 * kMiB));
    SAY(kind.free(&piece));
    SAY(allocate(kind, &piece, 2 * kMiB));
    SAY(allocate(kind, &piece, 200 * kMiB));
  }
  CUdeviceptr managed = 0;
  SAY(cuMemAllocManaged(&managed, 300 * kMiB, CU_MEM_ATTACH_GLOBAL));
  SAY(cuMemFree(managed));
  SAY(cuMemAllocManaged(&managed, 100 * kMiB, CU_MEM_ATTACH_GLOBAL));
  return 0;
}
