// SPDX-License-Identifier: Apache-2.0
// The device is reset again and again; the report counts what the driver saw.
// Small and large blocks are in use, freed and idle.

#include "../driver_codes.h"

int main() {
  for (int life = 0; life < 3; ++life) {
    use_device(0);
    CUdeviceptr kept[2];
    SAY(cuMemAlloc(&kept[0], 5000));
    SAY(cuMemAlloc(&kept[1], 5 * kMiB));
    allocate_and_free(100, 4096);
    allocate_and_free(100, 4 * kMiB);
    SAY(cuDevicePrimaryCtxReset(0));
  }
  use_device(0);
  allocate_and_free(10, 4096);
  return 0;
}
