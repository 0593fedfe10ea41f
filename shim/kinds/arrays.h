// SPDX-License-Identifier: Apache-2.0
// Arrays: the driver's own, charged to the device of the context they are created in. Only the
// driver knows how many bytes an array takes, so it is asked. Arguments are the program's; the
// driver checks them. Any thread.
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

CUresult create_array(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* desc);
CUresult create_array(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* desc);
CUresult create_array(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* desc, unsigned levels);

CUresult destroy_array(CUarray array);
CUresult destroy_array(CUmipmappedArray array);

}  // namespace cistern::shim
