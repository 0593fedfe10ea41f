// SPDX-License-Identifier: Apache-2.0
// Arrays, textures and surfaces, in the driver's words.

#include <cuda_runtime_api.h>

#include "tests/sim/cudart/array_shape.h"
#include "tests/sim/cudart/state.h"

using namespace simcudart;

namespace {

CUarray driver_array(cudaArray_const_t array) {
  return reinterpret_cast<CUarray>(const_cast<cudaArray_t>(array));
}

cudaError_t create(cudaArray_t* out, const cudaChannelFormatDesc* channels,
                   const cudaExtent& extent, unsigned flags) {
  if (out == nullptr || channels == nullptr) return remember(cudaErrorInvalidValue);
  const auto shape = shape_of(*channels);
  if (!shape) return remember(cudaErrorInvalidChannelDescriptor);
  return in_context([&](const Driver& d) {
    const CUDA_ARRAY3D_DESCRIPTOR description{extent.width,  extent.height,   extent.depth,
                                              shape->format, shape->channels, flags};
    return d.cuArray3DCreate_(reinterpret_cast<CUarray*>(out), &description);
  });
}

CUDA_TEXTURE_DESC driver_texture(const cudaTextureDesc& from) {
  CUDA_TEXTURE_DESC out{};
  for (int i = 0; i < 3; ++i) {
    out.addressMode[i] = static_cast<CUaddress_mode>(from.addressMode[i]);
  }
  out.filterMode = static_cast<CUfilter_mode>(from.filterMode);
  if (from.readMode == cudaReadModeElementType) out.flags |= CU_TRSF_READ_AS_INTEGER;
  if (from.normalizedCoords != 0) out.flags |= CU_TRSF_NORMALIZED_COORDINATES;
  if (from.sRGB != 0) out.flags |= CU_TRSF_SRGB;
  if (from.disableTrilinearOptimization != 0) out.flags |= CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
  if (from.seamlessCubemap != 0) out.flags |= CU_TRSF_SEAMLESS_CUBEMAP;
  out.maxAnisotropy = from.maxAnisotropy;
  out.mipmapFilterMode = static_cast<CUfilter_mode>(from.mipmapFilterMode);
  out.mipmapLevelBias = from.mipmapLevelBias;
  out.minMipmapLevelClamp = from.minMipmapLevelClamp;
  out.maxMipmapLevelClamp = from.maxMipmapLevelClamp;
  for (int i = 0; i < 4; ++i) out.borderColor[i] = from.borderColor[i];
  return out;
}

cudaTextureDesc runtime_texture(const CUDA_TEXTURE_DESC& from) {
  cudaTextureDesc out{};
  const auto has = [&](unsigned flag) { return (from.flags & flag) != 0 ? 1 : 0; };
  for (int i = 0; i < 3; ++i) {
    out.addressMode[i] = static_cast<cudaTextureAddressMode>(from.addressMode[i]);
  }
  out.filterMode = static_cast<cudaTextureFilterMode>(from.filterMode);
  out.readMode =
      has(CU_TRSF_READ_AS_INTEGER) != 0 ? cudaReadModeElementType : cudaReadModeNormalizedFloat;
  out.normalizedCoords = has(CU_TRSF_NORMALIZED_COORDINATES);
  out.sRGB = has(CU_TRSF_SRGB);
  out.disableTrilinearOptimization = has(CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION);
  out.seamlessCubemap = has(CU_TRSF_SEAMLESS_CUBEMAP);
  out.maxAnisotropy = from.maxAnisotropy;
  out.mipmapFilterMode = static_cast<cudaTextureFilterMode>(from.mipmapFilterMode);
  out.mipmapLevelBias = from.mipmapLevelBias;
  out.minMipmapLevelClamp = from.minMipmapLevelClamp;
  out.maxMipmapLevelClamp = from.maxMipmapLevelClamp;
  for (int i = 0; i < 4; ++i) out.borderColor[i] = from.borderColor[i];
  return out;
}

}  // namespace

cudaError_t cudaMallocArray(cudaArray_t* out, const cudaChannelFormatDesc* channels, size_t width,
                            size_t height, unsigned flags) {
  return create(out, channels, {width, height, 0}, flags);
}

cudaError_t cudaMalloc3DArray(cudaArray_t* out, const cudaChannelFormatDesc* channels,
                              cudaExtent extent, unsigned flags) {
  return create(out, channels, extent, flags);
}

cudaError_t cudaFreeArray(cudaArray_t array) {
  return in_context([&](const Driver& d) {
    return array == nullptr ? CUDA_SUCCESS : d.cuArrayDestroy_(driver_array(array));
  });
}

cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* out, cudaArray_const_t array) {
  if (out == nullptr) return remember(cudaErrorInvalidValue);
  return in_context([&](const Driver& d) {
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    const CUresult result = d.cuArray3DGetDescriptor_(&shape, driver_array(array));
    if (result == CUDA_SUCCESS) *out = channels_of({shape.Format, shape.NumChannels});
    return result;
  });
}

cudaError_t cudaCreateTextureObject(cudaTextureObject_t* out, const cudaResourceDesc* resource,
                                    const cudaTextureDesc* texture,
                                    const cudaResourceViewDesc* view) {
  if (out == nullptr || resource == nullptr || texture == nullptr) {
    return remember(cudaErrorInvalidValue);
  }
  const auto made_of = driver_resource(*resource);
  if (!made_of) return remember(cudaErrorInvalidChannelDescriptor);
  if (view != nullptr) return remember(cudaErrorNotSupported);
  const CUDA_TEXTURE_DESC how = driver_texture(*texture);
  return in_context(
      [&](const Driver& d) { return d.cuTexObjectCreate_(out, &*made_of, &how, nullptr); });
}

cudaError_t cudaDestroyTextureObject(cudaTextureObject_t texture) {
  return in_context([&](const Driver& d) { return d.cuTexObjectDestroy_(texture); });
}

cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* out, cudaTextureObject_t texture) {
  if (out == nullptr) return remember(cudaErrorInvalidValue);
  return in_context([&](const Driver& d) {
    CUDA_RESOURCE_DESC resource{};
    const CUresult result = d.cuTexObjectGetResourceDesc_(&resource, texture);
    if (result == CUDA_SUCCESS) *out = runtime_resource(resource);
    return result;
  });
}

cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* out, cudaTextureObject_t texture) {
  if (out == nullptr) return remember(cudaErrorInvalidValue);
  return in_context([&](const Driver& d) {
    CUDA_TEXTURE_DESC how{};
    const CUresult result = d.cuTexObjectGetTextureDesc_(&how, texture);
    if (result == CUDA_SUCCESS) *out = runtime_texture(how);
    return result;
  });
}

cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* out, const cudaResourceDesc* resource) {
  if (out == nullptr || resource == nullptr) return remember(cudaErrorInvalidValue);
  const auto made_of = driver_resource(*resource);
  if (!made_of) return remember(cudaErrorInvalidValue);
  return in_context([&](const Driver& d) { return d.cuSurfObjectCreate_(out, &*made_of); });
}

cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t surface) {
  return in_context([&](const Driver& d) { return d.cuSurfObjectDestroy_(surface); });
}
