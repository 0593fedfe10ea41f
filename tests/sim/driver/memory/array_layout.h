// SPDX-License-Identifier: Apache-2.0
//
// What an array of a given shape takes. A real GPU's layout is secret; this one has what matters of
// it: it depends on the format, and it is never less than the elements and mostly more. Any thread.
#pragma once

#include "base/cuda.h"

namespace simcuda {

// Bytes of all levels, in whole kArrayAlignment; 0: a shape that cannot be. `levels` is clamped as
// cuMipmappedArrayCreate says.
inline constexpr size_t kArrayAlignment = size_t{64} << 10;
size_t array_layout(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels);

// Bytes of an element; 0 where elements are not kept one by one.
size_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR& shape);

}  // namespace simcuda
