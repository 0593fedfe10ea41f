// SPDX-License-Identifier: Apache-2.0
//
// Texture and surface objects: they keep what they were made of, and tell it. No kernel reads
// through one.
#include <optional>
#include <type_traits>

#include "api/api.h"
#include "base/handles.h"
#include "memory/allocation.h"
#include "memory/array.h"

using namespace simcuda;

namespace {

struct Object {
  CUDA_RESOURCE_DESC resource;
  std::optional<CUDA_TEXTURE_DESC> texture;  // none: a surface
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
};

static_assert(std::is_same_v<CUtexObject, CUsurfObject>);
HandleTable<CUtexObject, Object>& objects() {
  static auto& all = *new HandleTable<CUtexObject, Object>;
  return all;
}

bool exists(const CUDA_RESOURCE_DESC& resource) {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return describe_array(resource.res.array.hArray, &shape) == CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return describe_array(reinterpret_cast<CUarray>(resource.res.mipmap.hMipmappedArray),
                            &shape) == CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_LINEAR:
      return device_covers(resource.res.linear.devPtr, resource.res.linear.sizeInBytes);
    case CU_RESOURCE_TYPE_PITCH2D:
      return device_covers(resource.res.pitch2D.devPtr,
                           resource.res.pitch2D.pitchInBytes * resource.res.pitch2D.height);
    default:
      return false;
  }
}

CUresult create(CUtexObject* out, const Object& object) {
  return in_context([&](Context&) {
    if (!exists(object.resource)) return CUDA_ERROR_INVALID_VALUE;
    *out = objects().insert(std::make_shared<Object>(object));
    return CUDA_SUCCESS;
  });
}

CUresult destroy(CUtexObject object) {
  return objects().remove(object) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// Hands out one member of an object that has it.
template <typename Value, typename Member>
CUresult tell(CUtexObject object, Value* out, Member member) {
  const auto found = objects().find(object);
  if (out == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::optional<Value> value = member(*found);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  *out = *value;
  return CUDA_SUCCESS;
}

std::optional<CUDA_RESOURCE_DESC> resource_of(const Object& object) { return object.resource; }

}  // namespace

extern "C" {

CUresult cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                           const CUDA_TEXTURE_DESC* pTexDesc,
                           const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  return call(Call::cuTexObjectCreate, [&] {
    if (pTexObject == nullptr || pResDesc == nullptr || pTexDesc == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    Object object{*pResDesc, *pTexDesc, std::nullopt};
    if (pResViewDesc != nullptr) object.view = *pResViewDesc;
    return create(pTexObject, object);
  });
}

CUresult cuTexObjectDestroy(CUtexObject texObject) {
  return call(Call::cuTexObjectDestroy, [&] { return destroy(texObject); });
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  return call(Call::cuTexObjectGetResourceDesc,
              [&] { return tell(texObject, pResDesc, resource_of); });
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  return call(Call::cuTexObjectGetTextureDesc, [&] {
    return tell(texObject, pTexDesc, [](const Object& object) { return object.texture; });
  });
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc,
                                        CUtexObject texObject) {
  return call(Call::cuTexObjectGetResourceViewDesc, [&] {
    return tell(texObject, pResViewDesc, [](const Object& object) { return object.view; });
  });
}

CUresult cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  return call(Call::cuSurfObjectCreate, [&] {
    if (pSurfObject == nullptr || pResDesc == nullptr ||
        pResDesc->resType != CU_RESOURCE_TYPE_ARRAY) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return create(pSurfObject, {*pResDesc, std::nullopt, std::nullopt});
  });
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject) {
  return call(Call::cuSurfObjectDestroy, [&] { return destroy(surfObject); });
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  return call(Call::cuSurfObjectGetResourceDesc,
              [&] { return tell(surfObject, pResDesc, resource_of); });
}

}  // extern "C"
