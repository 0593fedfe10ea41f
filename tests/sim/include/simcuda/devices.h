// SPDX-License-Identifier: Apache-2.0
//
// What the simulated NVML asks the simulated driver of the same process. Found with dlsym: on a
// real driver there is nothing to find. Any thread, also before cuInit.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct SimcudaDevice {
  uint64_t total_bytes;
  uint64_t used_bytes;  // by this process; 0 before cuInit, and in a child forked after it
  int has_context;      // of this process
} SimcudaDevice;

// The number of devices, whose first `room` ones are described; -1 where the settings cannot be
// understood, so that cuInit fails, too.
int simcuda_devices(SimcudaDevice* out, int room);

#ifdef __cplusplus
}
#endif
