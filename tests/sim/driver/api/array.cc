// SPDX-License-Identifier: Apache-2.0
//
// Arrays.
#include "memory/array.h"

#include "api/api.h"

using namespace simcuda;

namespace {

CUresult create(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return in_context([&](Context& context) { return create_array(context, shape, array); });
}

}  // namespace

extern "C" {

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  return call(
      Call::cuArrayCreate_v2,
      [&] {
        if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const CUDA_ARRAY_DESCRIPTOR& flat = *pAllocateArray;
        return create(pHandle, {flat.Width, flat.Height, 0, flat.Format, flat.NumChannels, 0});
      },
      out("pHandle", pHandle));
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  return call(
      Call::cuArray3DCreate_v2,
      [&] {
        if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return create(pHandle, *pAllocateArray);
      },
      out("pHandle", pHandle));
}

CUresult cuArrayDestroy(CUarray hArray) {
  return call(
      Call::cuArrayDestroy, [&] { return destroy_array(hArray); }, in("hArray", hArray));
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  return call(Call::cuArrayGetDescriptor_v2, [&] {
    if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    const CUresult code = describe_array(hArray, &shape);
    if (code != CUDA_SUCCESS) return code;
    *pArrayDescriptor = {shape.Width, shape.Height, shape.Format, shape.NumChannels};
    return CUDA_SUCCESS;
  });
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  return call(Call::cuArray3DGetDescriptor_v2, [&] {
    if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return describe_array(hArray, pArrayDescriptor);
  });
}

}  // extern "C"
