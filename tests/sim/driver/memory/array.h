// SPDX-License-Identifier: Apache-2.0
//
// CUDA arrays: charged to their device as the real ones are. Their elements can be copied. Any
// thread.
#pragma once

#include <cstddef>

#include "base/cuda.h"

namespace simcuda {

class Context;

// A 1D or 2D array is one without depth (and height), one level one that is not mipmapped. With
// deferred mapping it never has memory.
CUresult create_array(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels,
                      CUarray* array);
CUresult destroy_array(CUarray array);
CUresult describe_array(CUarray array, CUDA_ARRAY3D_DESCRIPTOR* shape);

// Where the elements of an array are, row by row without gaps. One that is compressed, mipmapped or
// has no memory has none: CUDA_ERROR_INVALID_VALUE.
struct Elements {
  CUdeviceptr memory;
  size_t row_bytes;
  size_t rows;    // of an image
  size_t images;  // slices, layers or faces
};
CUresult elements_of(CUarray array, Elements* elements);

// Of one with deferred mapping only, as cuda.h says.
CUresult require_array(CUarray array, CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements);

}  // namespace simcuda
