// SPDX-License-Identifier: Apache-2.0
//
// Primary contexts: one per device, alive while somebody retains it. NVIDIA's runtime has one made
// beforehand; such a one lives, and is not yet active. Any thread.
#pragma once

#include "base/cuda.h"

namespace simcuda {

class Device;

CUresult make_primary(Device& device, CUcontext* context);
CUresult retain_primary(Device& device, CUcontext* context);
CUresult release_primary(Device& device);
CUresult reset_primary(Device& device);
CUresult set_primary_flags(Device& device, unsigned flags);
CUresult primary_state(Device& device, unsigned* flags, int* active);

}  // namespace simcuda
