// SPDX-License-Identifier: Apache-2.0
// Every way to take memory of a device, behind one face: to allocate about so many bytes, and to
// give them back.
#pragma once

#include <cuda.h>

#include "driver_codes.h"

struct Piece {
  CUdeviceptr handle = 0;  // an address or a handle
  CUdeviceptr mapped = 0;
  size_t bytes = 0;
};

struct Kind {
  const char* name;
  CUresult (*allocate)(Piece* piece, size_t bytes, CUdevice device);
  CUresult (*free)(Piece* piece);
};

namespace kinds {

inline CUresult linear(Piece* p, size_t bytes, CUdevice) { return cuMemAlloc(&p->handle, bytes); }
inline CUresult free_linear(Piece* p) { return cuMemFree(p->handle); }

// Rows of 512 bytes less than all of which is used: the pitch is what counts.
inline CUresult pitched(Piece* p, size_t bytes, CUdevice) {
  size_t pitch = 0;
  return cuMemAllocPitch(&p->handle, &pitch, 500, bytes / 512, 4);
}

template <typename Array>
CUresult taken(Piece* p, Array array, CUresult code) {
  p->handle = reinterpret_cast<CUdeviceptr>(array);
  return code;
}

// Extents that do not fill their tiles: the driver takes more than the elements need.
inline CUresult flat_array(Piece* p, size_t bytes, CUdevice) {
  const CUDA_ARRAY_DESCRIPTOR shape{250, bytes / 1024, CU_AD_FORMAT_FLOAT, 1};
  CUarray array = nullptr;
  const CUresult code = cuArrayCreate(&array, &shape);
  return taken(p, array, code);
}

inline CUresult deep_array(Piece* p, size_t bytes, CUdevice) {
  const CUDA_ARRAY3D_DESCRIPTOR shape{60, 63, bytes / (64 * 64 * 4), CU_AD_FORMAT_FLOAT, 1, 0};
  CUarray array = nullptr;
  const CUresult code = cuArray3DCreate(&array, &shape);
  return taken(p, array, code);
}

inline CUresult free_array(Piece* p) {
  return cuArrayDestroy(reinterpret_cast<CUarray>(p->handle));
}

inline CUresult mipmapped(Piece* p, size_t bytes, CUdevice) {
  const CUDA_ARRAY3D_DESCRIPTOR shape{250, bytes / 1408, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUmipmappedArray array = nullptr;
  const CUresult code = cuMipmappedArrayCreate(&array, &shape, 4);
  return taken(p, array, code);
}

inline CUresult free_mipmapped(Piece* p) {
  return cuMipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(p->handle));
}

inline CUresult stream_ordered(Piece* p, size_t bytes, CUdevice) {
  return cuMemAllocAsync(&p->handle, bytes, nullptr);
}

inline CUresult free_stream_ordered(Piece* p) {
  const CUresult code = cuMemFreeAsync(p->handle, nullptr);
  const CUresult waited = cuStreamSynchronize(nullptr);
  return code != CUDA_SUCCESS ? code : waited;
}

// A pool of the program's own, one for each device.
inline CUmemoryPool own_pool(CUdevice device) {
  static CUmemoryPool pools[8] = {};
  if (pools[device] == nullptr) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    SAY(cuMemPoolCreate(&pools[device], &properties));
  }
  return pools[device];
}

inline CUresult from_own_pool(Piece* p, size_t bytes, CUdevice device) {
  return cuMemAllocFromPoolAsync(&p->handle, bytes, own_pool(device), nullptr);
}

inline CUmemAllocationProp on_device(CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}

inline CUresult physical(Piece* p, size_t bytes, CUdevice device) {
  const CUmemAllocationProp properties = on_device(device);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult code = cuMemCreate(&handle, bytes, &properties, 0);
  p->handle = handle;
  return code;
}

inline CUresult free_physical(Piece* p) { return cuMemRelease(p->handle); }

// The handle is released at once: the mapping alone holds the memory.
inline CUresult mapped(Piece* p, size_t bytes, CUdevice device) {
  const CUresult created = physical(p, bytes, device);
  if (created != CUDA_SUCCESS) return created;
  cuMemAddressReserve(&p->mapped, bytes, 0, 0, 0);
  cuMemMap(p->mapped, bytes, 0, p->handle, 0);
  return cuMemRelease(p->handle);
}

inline CUresult free_mapped(Piece* p) {
  const CUresult code = cuMemUnmap(p->mapped, p->bytes);
  if (code == CUDA_SUCCESS) cuMemAddressFree(p->mapped, p->bytes);
  return code;
}

inline constexpr Kind kAll[] = {
    {"linear", linear, free_linear},
    {"pitched", pitched, free_linear},
    {"flat array", flat_array, free_array},
    {"deep array", deep_array, free_array},
    {"mipmapped array", mipmapped, free_mipmapped},
    {"stream-ordered", stream_ordered, free_stream_ordered},
    {"stream-ordered, freed plainly", stream_ordered, free_linear},
    {"from a pool", from_own_pool, free_stream_ordered},
    {"physical", physical, free_physical},
    {"mapped", mapped, free_mapped},
};

}  // namespace kinds

inline CUresult allocate(const Kind& kind, Piece* piece, size_t bytes, CUdevice device = 0) {
  *piece = {};
  piece->bytes = bytes;
  return kind.allocate(piece, bytes, device);
}
