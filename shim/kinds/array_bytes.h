// SPDX-License-Identifier: Apache-2.0
// What an array takes of its device. Its layout is the driver's secret, so the driver is asked.
#pragma once

#include <cstdint>

#include "shim/cuda_api.h"

namespace cistern::shim {

// Bytes an array of this description will take in the current context, on `device`; `levels` 0:
// not mipmapped. 0 where it takes none (sparse, deferred mapping) or nothing can be said. May call
// the driver, but not while a capture is in progress. Any thread.
uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& description, unsigned levels, CUdevice device);

}  // namespace cistern::shim
