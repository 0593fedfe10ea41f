// SPDX-License-Identifier: Apache-2.0
// Allocation and free: the pools answer for the memory that they serve (pooled/memory.h), the
// driver for the rest (kinds/unpooled.h). Queries of a device's memory: idle memory counts as free,
// and a cap is reported as the size of the device. Any thread.
#include "shim/pooled/memory.h"

#include <algorithm>

#include "allocator/base/source.h"
#include "shim/entry/driver.h"
#include "shim/kinds/unpooled.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/process/no_cancel.h"
#include "shim/process/settings.h"
#include "shim/watch/watch.h"

namespace cistern::shim {
namespace {

// Reads the driver's free bytes, then the bytes that the pools keep. A chunk that moves between the
// two readings would count twice or not at all, so both are read again if any chunk moved. After
// kAttempts the last readings are used; they never count live memory as free.
CUresult driver_and_pools(const Device* device, CUdevice ordinal, size_t* free, size_t* total,
                          PooledBytes* pooled) {
  constexpr int kAttempts = 8;
  constexpr uint64_t kPatienceNs = 200'000'000;
  const NoCancel counted;
  const alloc::CountedIn counting(shared().threads_counting);
  const auto changes = [device]() -> uint64_t {
    if (device == nullptr) return 0;
    const alloc::Ledger& ledger = device->ledger;
    return ledger.obtained.get() + ledger.releases() + shared().movers.begun();
  };
  CUresult result;
  uint64_t before;
  int attempts = 0;
  do {
    before = changes();
    if (device != nullptr) shared().await_moving(kPatienceNs);
    result = noted(driver().cuMemGetInfo_v2(free, total));
    if (device != nullptr) *pooled = pooled_bytes_of(ordinal);
  } while (result == CUDA_SUCCESS && before != changes() && ++attempts < kAttempts);
  return result;
}

// cuMemGetInfo: either pointer may be null.
CUresult memory_info(size_t* free, size_t* total) {
  size_t driver_free = 0, driver_total = 0;
  PooledBytes pooled;
  const CUdevice ordinal = active() ? current_device() : kNoDevice;
  const Device* device = known_device(ordinal);
  if (device != nullptr) about_to_tell_free(ordinal);
  const CUresult result = driver_and_pools(device, ordinal, &driver_free, &driver_total, &pooled);
  if (result != CUDA_SUCCESS) return result;
  if (device != nullptr) {
    // The driver would get back whole pages only; a part of a page would fit nothing.
    const uint64_t pages = pooled.idle / alloc::kDriverPage * alloc::kDriverPage;
    driver_free = std::min(driver_free + pages, driver_total - std::min(pooled.live, driver_total));
    const alloc::Cap& cap = device->cap;
    if (const uint64_t limit = cap.limit(); limit != 0) {
      driver_total = std::min(driver_total, limit);
      driver_free = std::min(driver_free, cap.available(pooled.idle));
    }
  }
  if (free != nullptr) *free = driver_free;
  if (total != nullptr) *total = driver_total;
  return CUDA_SUCCESS;
}

CUresult total_memory(size_t* bytes, CUdevice ordinal) {
  const CUresult result = driver().cuDeviceTotalMem_v2(bytes, ordinal);
  if (result != CUDA_SUCCESS || !active()) return result;
  const Device* device = known_device(ordinal);
  if (device != nullptr && device->cap.limit() != 0) *bytes = std::min(*bytes, device->cap.limit());
  return CUDA_SUCCESS;
}

CUresult noted_host_memory(CUresult result, void* const* memory, size_t bytes) {
  if (result == CUDA_SUCCESS) host_memory_appeared(reinterpret_cast<uintptr_t>(*memory), bytes);
  return result;
}

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces
using cistern::alloc::Memory;

// If only phases are recorded, the pools record their own memory (allocate_watched, free_watched).
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

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  return noted_host_memory(watch_allocation(Memory::pinned, pp, bytesize, nullptr,
                                            [=] { return allocate_pinned(pp, bytesize, Flags); }),
                           pp, bytesize);
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return noted_host_memory(
      watch_allocation(Memory::pinned, pp, bytesize, nullptr,
                       [=] { return allocate_pinned(pp, bytesize, /*flags=*/0); }),
      pp, bytesize);
}

CUresult cuMemFreeHost(void* p) {
  return watch_free(Memory::pinned, p, nullptr, [=] { return free_pinned(p); });
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) { return pinned_flags(pFlags, p); }

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  const CUresult result = pinned_device_pointer(pdptr, p, Flags);
  if (result == CUDA_SUCCESS && *pdptr != reinterpret_cast<CUdeviceptr>(p)) {
    everything_becomes_visible();
  }
  return result;
}
