// SPDX-License-Identifier: Apache-2.0
// The number of device bytes that an array takes. Only the driver knows the layout, so the driver
// is asked.
#pragma once

#include <cstdint>

#include "shim/cuda_api.h"

namespace cistern::shim {

// Bytes an array of this description will take in the current context, on `device`; `levels` 0:
// not mipmapped. 0 where it takes none (sparse, deferred mapping) or nothing can be said. May call
// the driver, but not while a capture is in progress. Any thread.
uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& description, unsigned levels, CUdevice device);

// What the elements alone take, which is the least; 0 if the size of the format is not known or 64
// bits do not hold the sum.
uint64_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR& description, unsigned levels);

}  // namespace cistern::shim
