// SPDX-License-Identifier: Apache-2.0
//
// CUDA arrays: charged to their device as the real ones are, otherwise opaque. Nothing can be
// copied to or from one. Any thread.
#pragma once

#include "base/cuda.h"

namespace simcuda {

class Context;

// A 1D or 2D array is one without depth (and height), one level one that is not mipmapped. With
// deferred mapping it never has memory.
CUresult create_array(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels,
                      CUarray* array);
CUresult destroy_array(CUarray array);
CUresult describe_array(CUarray array, CUDA_ARRAY3D_DESCRIPTOR* shape);
// Of one with deferred mapping only, as cuda.h says.
CUresult require_array(CUarray array, CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements);

}  // namespace simcuda
