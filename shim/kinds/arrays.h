// SPDX-License-Identifier: Apache-2.0
// Arrays: the driver's own, charged to the device of the context they are created in. Arguments are
// the program's; the driver checks them. Any thread.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

CUresult create_array(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* desc);
CUresult create_array(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* desc);
CUresult create_array(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* desc, unsigned levels);

CUresult destroy_array(CUarray array);
CUresult destroy_array(CUmipmappedArray array);

}  // namespace cistern::shim
