// SPDX-License-Identifier: Apache-2.0
//
// What a simulated device says about itself. Attributes not listed are 0: absent.
#pragma once

#include "base/cuda.h"

namespace simcuda {

int device_attribute(CUdevice_attribute attribute);

}  // namespace simcuda
