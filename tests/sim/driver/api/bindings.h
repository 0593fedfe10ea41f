// SPDX-License-Identifier: Apache-2.0
//
// What multicast objects and logical endpoints are bound to.
#pragma once

#include "base/cuda.h"

namespace simcuda {

// The memory behind this place of an endpoint; 0 where none is bound by its address.
CUdeviceptr address_behind(CUlogicalEndpointId endpoint, cuuint64_t offset);

}  // namespace simcuda
