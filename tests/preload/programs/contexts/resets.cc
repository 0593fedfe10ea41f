// SPDX-License-Identifier: Apache-2.0
// The device is reset again and again; the report counts what the driver saw.
// Small and large blocks are in use, freed and idle.
//
//   resets        no more than that
//   resets asked  each context is asked for memory once more when it is over

#include "../driver_codes.h"

int main(int argc, char**) {
  for (int life = 0; life < 3; ++life) {
    use_device(0);
    CUdeviceptr kept[2];
    SAY(cuMemAlloc(&kept[0], 5000));
    SAY(cuMemAlloc(&kept[1], 5 * kMiB));
    allocate_and_free(100, 4096);
    allocate_and_free(100, 4 * kMiB);
    SAY(cuDevicePrimaryCtxReset(0));
    if (argc > 1) SAY(cuMemAlloc(&kept[0], 5000));
  }
  use_device(0);
  allocate_and_free(10, 4096);
  return 0;
}
