// SPDX-License-Identifier: Apache-2.0
#include "memory/array.h"

#include <algorithm>

#include "base/handles.h"
#include "exec/context.h"
#include "memory/device.h"
#include "memory/device_memory.h"

namespace simcuda {
namespace {

struct Array {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  CUdeviceptr memory;
};

HandleTable<CUarray, Array>& arrays() {
  static auto& all = *new HandleTable<CUarray, Array>;
  return all;
}

// Bytes of one channel; 0 for a format arrays do not have here.
size_t channel_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

size_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  const bool channels = shape.NumChannels == 1 || shape.NumChannels == 2 || shape.NumChannels == 4;
  if (!channels) return 0;
  return shape.Width * std::max<size_t>(shape.Height, 1) * std::max<size_t>(shape.Depth, 1) *
         shape.NumChannels * channel_bytes(shape.Format);
}

}  // namespace

CUresult create_array(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& shape, CUarray* array) {
  CUdeviceptr memory = 0;
  // No bytes, for whatever reason, is a shape that cannot be.
  const CUresult code = allocate_device(context, bytes_of(shape), &memory);
  if (code == CUDA_SUCCESS) *array = arrays().insert(std::make_shared<Array>(Array{shape, memory}));
  return code;
}

CUresult destroy_array(CUarray handle) {
  const auto array = arrays().remove(handle);
  return array == nullptr ? CUDA_ERROR_INVALID_HANDLE : free_device(array->memory);
}

CUresult describe_array(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR* shape) {
  const auto array = arrays().find(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *shape = array->shape;
  return CUDA_SUCCESS;
}

}  // namespace simcuda
