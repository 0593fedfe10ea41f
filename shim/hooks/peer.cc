// SPDX-License-Identifier: Apache-2.0
// Access from one context to memory of another, or of another process (order/ties.h).
#include "shim/entry/driver.h"
#include "shim/kinds/imported.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/debts.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/context_life.h"
#include "shim/order/ties.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/process/settings.h"

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

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

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
