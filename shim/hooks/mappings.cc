// SPDX-License-Identifier: Apache-2.0
// The program's own virtual memory management, and access to memory of another context or process.
#include "shim/entry/driver.h"
#include "shim/kinds/imported.h"
#include "shim/kinds/unpooled.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/barrier/work.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/context_life.h"
#include "shim/order/ties.h"
#include "shim/pooled/memory.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/process/settings.h"

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

// --- The program's own virtual memory management. The driver answers; physical memory is followed
// if it is charged (kinds/charges.h) or recorded. For memory of the pools the program gets the
// answers that the driver gives for memory of cuMemAlloc, even if that memory comes from virtual
// memory management (pooled/memory.h).

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

// --- Access from one context to memory of another, or of another process (order/ties.h).

namespace cistern::shim {
namespace {

CUresult open_memory(OpenMemHandle* real, CUdeviceptr* out, CUipcMemHandle handle,
                     unsigned int flags) {
  everything_becomes_visible();
  const CUresult result = by_token(handle) ? open_imported(real, out, handle, flags)
                                           : ask_with_idle_memory(real, out, handle, flags);
  const bool peers = (flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != 0;
  if (result == CUDA_SUCCESS && peers && active()) {
    current_context();  // notices a context whose creation no hook saw
    peer_device_opened(*out);
    share_all_units();
  }
  return result;
}

// Peer access covers memory of cuMemAlloc. If units cannot be shared as well, the call fails.
CUresult share_or_disable(CUcontext owner) {
  peer_access_changed(owner, /*on=*/true);
  const CUresult shared = share_units(owner);
  if (shared == CUDA_SUCCESS) return shared;
  driver().cuCtxDisablePeerAccess(owner);
  peer_access_changed(owner, /*on=*/false);
  share_units(owner);
  return shared;
}

}  // namespace
}  // namespace cistern::shim

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  const CUresult result = ask_with_idle_memory(driver().cuCtxEnablePeerAccess, peerContext, Flags);
  if (result != CUDA_SUCCESS || !active()) return result;
  current_context();  // notices a context whose creation no hook saw
  notice_context(peerContext);
  pay_debts();
  return share_or_disable(peerContext);
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  pay_debts();
  const CUresult result = ask(driver().cuCtxDisablePeerAccess, peerContext);
  if (result == CUDA_SUCCESS && active()) {
    peer_access_changed(peerContext, /*on=*/false);
    share_units(peerContext);
  }
  return result;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  pay_debts();
  return close_imported(dptr);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return open_memory(driver().cuIpcOpenMemHandle, pdptr, handle, Flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return open_memory(driver().cuIpcOpenMemHandle_v2, pdptr, handle, Flags);
}
