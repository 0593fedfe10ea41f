// SPDX-License-Identifier: Apache-2.0
#include "memory/array.h"

#include <algorithm>

#include "base/handles.h"
#include "exec/context.h"
#include "memory/array_layout.h"
#include "memory/device.h"
#include "memory/device_memory.h"

namespace simcuda {
namespace {

// Also a mipmapped one: both handles name the same thing.
struct Array {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  unsigned levels;
  size_t bytes;
  CUdeviceptr memory;  // 0: deferred mapping
};

HandleTable<CUarray, Array>& arrays() {
  static auto& all = *new HandleTable<CUarray, Array>;
  return all;
}

}  // namespace

CUresult create_array(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels,
                      CUarray* array) {
  CUdeviceptr memory = 0;
  const size_t bytes = array_layout(shape, levels);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool deferred = (shape.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) != 0;
  const CUresult code = deferred ? CUDA_SUCCESS : allocate_device(context, bytes, &memory);
  if (code == CUDA_SUCCESS) {
    *array = arrays().insert(std::make_shared<Array>(Array{shape, levels, bytes, memory}));
  }
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

CUresult elements_of(CUarray handle, Elements* elements) {
  const auto array = arrays().find(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUDA_ARRAY3D_DESCRIPTOR& shape = array->shape;
  const size_t bytes = element_bytes(shape);
  if (bytes == 0 || array->memory == 0 || array->levels != 1) return CUDA_ERROR_INVALID_VALUE;
  *elements = {array->memory, shape.Width * bytes, std::max<size_t>(shape.Height, 1),
               std::max<size_t>(shape.Depth, 1)};
  return CUDA_SUCCESS;
}

CUresult require_array(CUarray handle, CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements) {
  const auto array = arrays().find(handle);
  if (array == nullptr || array->memory != 0) return CUDA_ERROR_INVALID_VALUE;
  *requirements = {.size = array->bytes, .alignment = kArrayAlignment, .reserved = {}};
  return CUDA_SUCCESS;
}

}  // namespace simcuda
