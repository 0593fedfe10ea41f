// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays (kinds/arrays.h).
#include "shim/kinds/arrays.h"

#include "shim/entry/faces.h"

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* desc) {
  return create_array(pHandle, desc);
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* desc) {
  return create_array(pHandle, desc);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* desc,
                                unsigned int levels) {
  return create_array(pHandle, desc, levels);
}

CUresult cuArrayDestroy(CUarray hArray) { return destroy_array(hArray); }

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return destroy_array(hMipmappedArray);
}
