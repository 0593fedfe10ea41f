// SPDX-License-Identifier: Apache-2.0
// The table by which the simulated runtime makes primary contexts, out of sight of whoever stands
// between it and the driver, as NVIDIA's runtime does. That one's own tables are not simulated.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace simcuda {

struct RuntimeTable {
  size_t bytes;
  CUresult (*make_primary)(CUcontext* context, CUdevice device);
};

inline constexpr CUuuid kRuntimeTable = {"simulated cudar"};

}  // namespace simcuda
