// SPDX-License-Identifier: Apache-2.0
//
// Arrays.
#include "memory/array.h"

#include "api/api.h"

using namespace simcuda;

namespace {

CUresult create(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels = 1) {
  if (array == nullptr || levels == 0) return CUDA_ERROR_INVALID_VALUE;
  return in_context([&](Context& context) { return create_array(context, shape, levels, array); });
}

CUarray as_array(CUmipmappedArray mipmapped) { return reinterpret_cast<CUarray>(mipmapped); }

CUresult require(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUarray array) {
  return requirements == nullptr ? CUDA_ERROR_INVALID_VALUE : require_array(array, requirements);
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

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements,
                                      CUarray array, CUdevice device) {
  return call(Call::cuArrayGetMemoryRequirements,
              [&] { return require(memoryRequirements, array); });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  return call(
      Call::cuMipmappedArrayCreate,
      [&] {
        if (pMipmappedArrayDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return create(reinterpret_cast<CUarray*>(pHandle), *pMipmappedArrayDesc, numMipmapLevels);
      },
      out("pHandle", pHandle), in("numMipmapLevels", numMipmapLevels));
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return call(
      Call::cuMipmappedArrayDestroy, [&] { return destroy_array(as_array(hMipmappedArray)); },
      in("hMipmappedArray", hMipmappedArray));
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements,
                                               CUmipmappedArray mipmap, CUdevice device) {
  return call(Call::cuMipmappedArrayGetMemoryRequirements,
              [&] { return require(memoryRequirements, as_array(mipmap)); });
}

}  // extern "C"
