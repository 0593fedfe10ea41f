// SPDX-License-Identifier: Apache-2.0
// The program's own virtual memory management. The driver answers; physical memory is followed if
// it is charged (kinds/charges.h) or recorded. For memory of the pools the program gets the answers
// that the driver gives for memory of cuMemAlloc, even if that memory comes from virtual memory
// management (pooled/queries.h).
#include "shim/kinds/physical.h"

#include "shim/entry/driver.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/debts.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/pooled/queries.h"

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  const auto real = driver().cuMemCreate;
  if (prop != nullptr && prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    everything_becomes_visible();
  }
  if (real == nullptr || !following_physical()) {
    return ask_for_memory(real, handle, size, prop, flags);
  }
  return create_physical(handle, size, prop, flags);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const auto real = driver().cuMemRelease;
  return real == nullptr || !following_physical() ? ask(real, handle) : release_physical(handle);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  const auto real = driver().cuMemRetainAllocationHandle;
  addr = reinterpret_cast<void*>(not_in_a_unit(reinterpret_cast<CUdeviceptr>(addr)));
  return real == nullptr || !following_physical() ? ask(real, handle, addr)
                                                  : retain_physical(handle, addr);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  const auto real = driver().cuMemMap;
  ptr = not_in_a_unit(ptr, size);
  if (real == nullptr || !following_physical()) return ask(real, ptr, size, offset, handle, flags);
  return map_physical(ptr, size, offset, handle, flags);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  pay_debts();
  const auto real = driver().cuMemUnmap;
  ptr = not_in_a_unit(ptr, size);
  return real == nullptr || !following_physical() ? ask(real, ptr, size)
                                                  : unmap_physical(ptr, size);
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  return ask(driver().cuMemAddressFree, not_in_a_unit(ptr, size), size);
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  pay_debts();
  return ask_with_idle_memory(driver().cuMemSetAccess, not_in_a_unit(ptr, size), size, desc, count);
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  return ask(driver().cuMemGetAccess, flags, location, not_in_a_unit(ptr));
}

// Only the program's own physical memory, and stream-ordered memory, can be bound.

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                             CUdeviceptr memptr, size_t size, unsigned long long flags) {
  return ask_with_idle_memory(driver().cuMulticastBindAddr, mcHandle, mcOffset,
                              not_in_a_unit(memptr, size), size, flags);
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                                size_t mcOffset, CUdeviceptr memptr, size_t size,
                                unsigned long long flags) {
  return ask_with_idle_memory(driver().cuMulticastBindAddr_v2, mcHandle, dev, mcOffset,
                              not_in_a_unit(memptr, size), size, flags);
}

CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId leId, CUdevice dev, cuuint64_t offset,
                                   void* ptr, cuuint64_t size, unsigned long long flags) {
  const CUdeviceptr address = not_in_a_unit(reinterpret_cast<CUdeviceptr>(ptr), size);
  return ask_with_idle_memory(driver().cuLogicalEndpointBindAddr, leId, dev, offset,
                              reinterpret_cast<void*>(address), size, flags);
}
