// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/cudart/array_shape.h"

#include <algorithm>
#include <iterator>

namespace simcudart {
namespace {

struct Kind {
  CUarray_format format;
  int bits;
  cudaChannelFormatKind kind;
};

constexpr Kind kKinds[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, 8, cudaChannelFormatKindUnsigned},
    {CU_AD_FORMAT_UNSIGNED_INT16, 16, cudaChannelFormatKindUnsigned},
    {CU_AD_FORMAT_UNSIGNED_INT32, 32, cudaChannelFormatKindUnsigned},
    {CU_AD_FORMAT_SIGNED_INT8, 8, cudaChannelFormatKindSigned},
    {CU_AD_FORMAT_SIGNED_INT16, 16, cudaChannelFormatKindSigned},
    {CU_AD_FORMAT_SIGNED_INT32, 32, cudaChannelFormatKindSigned},
    {CU_AD_FORMAT_HALF, 16, cudaChannelFormatKindFloat},
    {CU_AD_FORMAT_FLOAT, 32, cudaChannelFormatKindFloat},
};

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// The driver's flags of a resource; the runtime has them from 13.0 on.
template <typename Resource>
void set_flags(Resource& resource, unsigned flags) {
  if constexpr (requires { resource.flags; }) resource.flags = flags;
}

template <typename Resource>
unsigned flags_of(const Resource& resource) {
  if constexpr (requires { resource.flags; }) return resource.flags;
  return 0;
}

}  // namespace

std::optional<ElementShape> shape_of(const cudaChannelFormatDesc& channels) {
  const int bits[] = {channels.x, channels.y, channels.z, channels.w};
  const auto used = static_cast<unsigned>(std::count(bits, std::end(bits), channels.x));
  const bool alike = std::all_of(bits, bits + used, [&](int b) { return b == channels.x; }) &&
                     std::all_of(bits + used, std::end(bits), [](int b) { return b == 0; });
  const Kind* kind = std::find_if(kKinds, std::end(kKinds), [&](const Kind& k) {
    return k.bits == channels.x && k.kind == channels.f;
  });
  if (!alike || kind == std::end(kKinds)) return std::nullopt;
  return ElementShape{kind->format, used};
}

cudaChannelFormatDesc channels_of(const ElementShape& shape) {
  const Kind* kind = std::find_if(kKinds, std::end(kKinds),
                                  [&](const Kind& k) { return k.format == shape.format; });
  if (kind == std::end(kKinds)) return {0, 0, 0, 0, cudaChannelFormatKindNone};
  const auto bits = [&](unsigned channel) { return channel < shape.channels ? kind->bits : 0; };
  return {bits(0), bits(1), bits(2), bits(3), kind->kind};
}

std::optional<CUDA_RESOURCE_DESC> driver_resource(const cudaResourceDesc& resource) {
  CUDA_RESOURCE_DESC out{};
  out.flags = flags_of(resource);
  switch (resource.resType) {
    case cudaResourceTypeArray:
      out.resType = CU_RESOURCE_TYPE_ARRAY;
      out.res.array.hArray = reinterpret_cast<CUarray>(resource.res.array.array);
      return out;
    case cudaResourceTypeMipmappedArray:
      out.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
      out.res.mipmap.hMipmappedArray =
          reinterpret_cast<CUmipmappedArray>(resource.res.mipmap.mipmap);
      return out;
    case cudaResourceTypeLinear: {
      const auto& from = resource.res.linear;
      const auto shape = shape_of(from.desc);
      if (!shape) return std::nullopt;
      out.resType = CU_RESOURCE_TYPE_LINEAR;
      out.res.linear = {address(from.devPtr), shape->format, shape->channels, from.sizeInBytes};
      return out;
    }
    case cudaResourceTypePitch2D: {
      const auto& from = resource.res.pitch2D;
      const auto shape = shape_of(from.desc);
      if (!shape) return std::nullopt;
      out.resType = CU_RESOURCE_TYPE_PITCH2D;
      out.res.pitch2D = {address(from.devPtr), shape->format, shape->channels,
                         from.width,           from.height,   from.pitchInBytes};
      return out;
    }
  }
  return std::nullopt;
}

cudaResourceDesc runtime_resource(const CUDA_RESOURCE_DESC& resource) {
  cudaResourceDesc out{};
  out.resType = static_cast<cudaResourceType>(resource.resType);
  set_flags(out, resource.flags);
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      out.res.mipmap.mipmap =
          reinterpret_cast<cudaMipmappedArray_t>(resource.res.mipmap.hMipmappedArray);
      break;
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& from = resource.res.linear;
      out.res.linear = {pointer(from.devPtr), channels_of({from.format, from.numChannels}),
                        from.sizeInBytes};
      break;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& from = resource.res.pitch2D;
      out.res.pitch2D = {pointer(from.devPtr), channels_of({from.format, from.numChannels}),
                         from.width, from.height, from.pitchInBytes};
      break;
    }
    default:
      out.res.array.array = reinterpret_cast<cudaArray_t>(resource.res.array.hArray);
  }
  return out;
}

}  // namespace simcudart
