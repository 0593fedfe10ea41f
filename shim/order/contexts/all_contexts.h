// SPDX-License-Identifier: Apache-2.0
// All contexts together: the memory that the contexts of a device keep for reuse, and the figures
// of the report at exit (process/report_figures.h). Any thread.
#pragma once

#include <cstdint>

#include "shim/cuda_api.h"
#include "shim/process/report_figures.h"

namespace cistern::shim {

struct Context;

// Bytes on a device. `idle`: kept, and could be released; counted as the driver and the cap count.
// `live`: handed to the program.
struct PooledBytes {
  uint64_t idle = 0, live = 0;
};
PooledBytes pooled_bytes_of(CUdevice device);

// To be called before the program is told how much of the device is free.
void about_to_tell_free(CUdevice device);

// Releases what the clients of contexts (order/contexts/context.h) keep on the device; kNoDevice:
// on every device. False if nothing was released.
bool release_idle_memory_of_clients(CUdevice device);

// Releases all that is kept on the device, except what the pool of `except` keeps. False if nothing
// was released. Waits 0.2 s at most, and only for work that was submitted before the frees.
bool release_idle_memory_of(CUdevice device, const Context* except);

// Releases all clean memory of the pools of the device's contexts to the driver, without a wait.
void release_clean_memory_of(CUdevice device);

// Makes no CUDA call.
ProcessReport describe_process();

}  // namespace cistern::shim
