// SPDX-License-Identifier: Apache-2.0
// If the pools' memory comes from virtual memory management (order/cuda_units.h), the driver knows
// handles, mappings and access of it that belong to Cistern. The program gets the same answers as
// for memory of cuMemAlloc. Any thread.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

// The address, or where the stretch begins or ends in such memory, one that cannot be an
// allocation (kNowhere): the driver answers for that as for memory of cuMemAlloc.
CUdeviceptr not_in_a_unit(CUdeviceptr address, size_t bytes = 1);

}  // namespace cistern::shim
