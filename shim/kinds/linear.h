// SPDX-License-Identifier: Apache-2.0
// Linear memory that no pool serves: cuMemAlloc without a pooled context, pitched and managed
// memory, and frees and queries of addresses outside the pools. It stays the driver's. If charges
// are kept, it is charged; with the fill on, it is filled. Any thread.
#pragma once

#include <cstddef>

#include "shim/cuda_api.h"

namespace cistern::shim {

// cuMemAlloc and cuMemFree beside the pools. Stream-ordered memory, too, may be freed this way.
CUresult allocate_linear(CUdeviceptr* out, size_t bytes);
CUresult free_linear(CUdeviceptr address);

CUresult allocate_pitched(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                          unsigned element_bytes);
CUresult allocate_managed(CUdeviceptr* out, size_t bytes, unsigned flags);

// cuMemGetAddressRange for such an address.
CUresult linear_range(CUdeviceptr* base, size_t* size, CUdeviceptr address);

}  // namespace cistern::shim
