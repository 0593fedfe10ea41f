// SPDX-License-Identifier: Apache-2.0
//
// A copy as cuMemcpy3D describes it, on a stream, for others that are described alike.
#pragma once

#include "exec/copy.h"

namespace simcuda {

CUresult copy_3d_on(Call id, const StreamRef& stream, const CUDA_MEMCPY3D& c, Timing timing);

}  // namespace simcuda
