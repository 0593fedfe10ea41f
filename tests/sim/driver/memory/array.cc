// SPDX-License-Identifier: Apache-2.0
#include "memory/array.h"

#include <algorithm>

#include "base/handles.h"
#include "exec/context.h"
#include "memory/device.h"
#include "memory/device_memory.h"

namespace simcuda {
namespace {

constexpr size_t kAlignment = size_t{64} << 10;

// Also a mipmapped one: both handles name the same thing.
struct Array {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  size_t bytes;
  CUdeviceptr memory;  // 0: deferred mapping
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

size_t up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Like a GPU's, an array is made of tiles of 64 bytes by 8 rows. 0: a shape that cannot be.
size_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels) {
  const bool channels = shape.NumChannels == 1 || shape.NumChannels == 2 || shape.NumChannels == 4;
  if (!channels || levels > 32) return 0;
  size_t sum = 0;
  for (unsigned level = 0; level < levels; ++level) {
    const auto extent = [&](size_t n) { return std::max<size_t>(n >> level, 1); };
    const size_t row =
        up(extent(shape.Width) * shape.NumChannels * channel_bytes(shape.Format), 64);
    sum += row * (shape.Height == 0 ? 1 : up(extent(shape.Height), 8)) * extent(shape.Depth);
  }
  return shape.Width == 0 ? 0 : up(sum, kAlignment);
}

}  // namespace

CUresult create_array(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels,
                      CUarray* array) {
  CUdeviceptr memory = 0;
  const size_t bytes = bytes_of(shape, levels);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool deferred = (shape.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) != 0;
  const CUresult code = deferred ? CUDA_SUCCESS : allocate_device(context, bytes, &memory);
  if (code == CUDA_SUCCESS) {
    *array = arrays().insert(std::make_shared<Array>(Array{shape, bytes, memory}));
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

CUresult require_array(CUarray handle, CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements) {
  const auto array = arrays().find(handle);
  if (array == nullptr || array->memory != 0) return CUDA_ERROR_INVALID_VALUE;
  *requirements = {.size = array->bytes, .alignment = kAlignment, .reserved = {}};
  return CUDA_SUCCESS;
}

}  // namespace simcuda
