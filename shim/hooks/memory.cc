// SPDX-License-Identifier: Apache-2.0
// Device memory: the pools answer what they serve (pooled/memory.h), the driver the rest
// (kinds/linear.h).
#include "shim/pooled/memory.h"
#include "shim/entry/faces.h"
#include "shim/kinds/linear.h"
#include "shim/order/barrier/host_visible.h"
#include "shim/pooled/memory_info.h"
#include "shim/watch/watch.h"

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces
using cistern::alloc::Memory;

// Where phases alone are watched, the pools tell them of their own memory.
CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  const auto call = [=](auto serve) {
    Context* context = serving_context(dptr, bytesize);
    return context != nullptr ? serve(*context, dptr, bytesize) : allocate_linear(dptr, bytesize);
  };
  if (!watching()) [[likely]]
    return call(allocate);
  if (watching_phases_alone()) {
    Context* context = serving_context(dptr, bytesize);
    if (context != nullptr) return allocate_watched(*context, dptr, bytesize);
    return watched_allocation(Memory::linear, dptr, bytesize, nullptr,
                              [=] { return allocate_linear(dptr, bytesize); });
  }
  return watched_allocation(Memory::linear, dptr, bytesize, nullptr,
                            [=] { return call(allocate_watched); });
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  const auto call = [=](auto take_back) {
    cistern::alloc::Chunk* chunk;
    return ours(dptr, &chunk) ? take_back(chunk, dptr) : free_linear(dptr);
  };
  if (!watching()) [[likely]]
    return call(cistern::shim::free);
  cistern::alloc::Chunk* chunk;
  if (watching_phases_alone() && ours(dptr, &chunk)) return free_watched(chunk, dptr);
  return watched_free(Memory::linear, dptr, nullptr, [=] { return call(free_watched); });
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) { return memory_info(free, total); }

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) { return total_memory(bytes, dev); }

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  return watch_allocation(Memory::pitched, dptr, WidthInBytes * Height, nullptr, [=] {
    return allocate_pitched(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  });
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  const CUresult result = watch_allocation(Memory::managed, dptr, bytesize, nullptr,
                                           [=] { return allocate_managed(dptr, bytesize, flags); });
  if (result == CUDA_SUCCESS) host_memory_appeared(*dptr, bytesize);
  return result;
}
