// SPDX-License-Identifier: Apache-2.0
// Contexts: creation, synchronisation and end. Also the calls with which a program starts CUDA and
// finds its functions.
#include "shim/order/contexts/context_life.h"

#include "shim/entry/driver.h"
#include "shim/order/ask.h"
#include "shim/order/careful.h"
#include "shim/order/contexts/context.h"
#include "shim/order/submissions.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/process/settings.h"
#include "shim/watch/watch.h"

namespace cistern::shim {
namespace {

// Without pools Cistern does not track contexts, but a recording still needs their ends.
bool watched_without_pools() { return watching() && !active(); }

constinit std::atomic<CUcontext> watched_primaries[config::kMaxDevices] = {};

void watch_primary(CUdevice device, CUcontext handle) {
  if (!watched_without_pools() || static_cast<unsigned>(device) >= config::kMaxDevices) return;
  CUcontext before = watched_primaries[device].exchange(handle);
  if (before != nullptr && before != handle) watch_context_end(before, 0);
}

template <typename Function>
CUresult destroy_context(Function* real, CUcontext handle) {
  EndingScope scope(active() ? handle : nullptr);
  const CUresult result = ask(real, handle);
  if (result != CUDA_SUCCESS) return result;
  scope.ended();
  if (watched_without_pools()) watch_context_end(handle, 0);
  return result;
}

template <typename Function>
CUresult reset_primary(Function* real, CUdevice device) {
  EndingScope scope(active() ? primary_of(device) : nullptr);
  const CUresult result = ask(real, device);
  if (result != CUDA_SUCCESS) return result;
  scope.ended();
  primary_ended(device);
  watch_primary(device, nullptr);
  return result;
}

bool primary_lives(CUdevice device) {
  unsigned int flags;
  int alive = 1;
  return driver().cuDevicePrimaryCtxGetState(device, &flags, &alive) != CUDA_SUCCESS || alive != 0;
}

template <typename Function>
CUresult release_unfollowed(Function* real, CUdevice device) {
  const CUresult result = ask(real, device);
  if (result == CUDA_SUCCESS && watched_without_pools() && !primary_lives(device)) {
    watch_primary(device, nullptr);
  }
  return result;
}

// Only the last release ends the primary context. If another thread has retained it again
// meanwhile, the device has a new primary context: context_appeared() in that thread has already
// ended the old one here.
template <typename Function>
CUresult release_primary(Function* real, CUdevice device) {
  CUcontext primary = active() ? primary_of(device) : nullptr;
  if (primary == nullptr) return release_unfollowed(real, device);
  PrimaryRelease release(device);
  EndingScope scope(release.may_end() ? primary : nullptr);
  const CUresult result = ask(real, device);
  if (result != CUDA_SUCCESS || primary_lives(device)) return result;
  release.may_end() ? scope.ended() : EndingScope(primary).ended();
  primary_ended(device);
  return result;
}

CUresult synchronised(CUresult result) {
  if (result == CUDA_SUCCESS) watch_synchronised();
  return result;
}

template <typename Function, typename... Arguments>
CUresult create_context(Function* real, CUcontext* out, CUdevice device, Arguments... arguments) {
  const AppearingScope appearing;
  const CUresult result = ask_for_memory(real, out, arguments...);
  if (result == CUDA_SUCCESS && active()) context_appeared(*out, device);
  return result;
}

// A context whose creation no hook saw is noticed here, or in the next call that submits work.
template <typename Function>
CUresult made_current(Function* real, CUcontext handle) {
  const CUresult result = ask(real, handle);
  if (result != CUDA_SUCCESS || handle == nullptr || !active()) return result;
  if (about_to_be_retained(handle)) {
    next_submission_looks();
  } else {
    current_context();
  }
  return result;
}

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

// --- synchronisation: everything handed over before the call is done after it ---

CUresult cuCtxSynchronize() {
  if (!active()) return synchronised(ask(driver().cuCtxSynchronize));
  SynchroniseScope scope(nullptr);
  const CUresult result = ask(driver().cuCtxSynchronize);
  if (result == CUDA_SUCCESS) scope.succeeded();
  return synchronised(result);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  if (!active()) return synchronised(ask(driver().cuCtxSynchronize_v2, ctx));
  SynchroniseScope scope(ctx);
  const CUresult result = ask(driver().cuCtxSynchronize_v2, ctx);
  if (result == CUDA_SUCCESS) scope.succeeded();
  return synchronised(result);
}

// --- contexts made current ---

CUresult cuCtxPushCurrent(CUcontext ctx) { return made_current(driver().cuCtxPushCurrent, ctx); }

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  return made_current(driver().cuCtxPushCurrent_v2, ctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx) { return made_current(driver().cuCtxSetCurrent, ctx); }

// --- contexts coming and going ---

CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create_context(driver().cuCtxCreate, pctx, dev, flags, dev);
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create_context(driver().cuCtxCreate_v2, pctx, dev, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* params, int count, unsigned int flags,
                        CUdevice dev) {
  return create_context(driver().cuCtxCreate_v3, pctx, dev, params, count, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* params, unsigned int flags,
                        CUdevice dev) {
  return create_context(driver().cuCtxCreate_v4, pctx, dev, params, flags, dev);
}

CUresult cuGLCtxCreate(CUcontext* pCtx, unsigned int Flags, CUdevice device) {
  return create_context(driver().cuGLCtxCreate, pCtx, device, Flags, device);
}

CUresult cuGLCtxCreate_v2(CUcontext* pCtx, unsigned int Flags, CUdevice device) {
  return create_context(driver().cuGLCtxCreate_v2, pCtx, device, Flags, device);
}

CUresult cuVDPAUCtxCreate(CUcontext* pCtx, unsigned int flags, CUdevice device,
                          cuuint32_t vdpDevice, void* vdpGetProcAddress) {
  return create_context(driver().cuVDPAUCtxCreate, pCtx, device, flags, device, vdpDevice,
                        vdpGetProcAddress);
}

CUresult cuVDPAUCtxCreate_v2(CUcontext* pCtx, unsigned int flags, CUdevice device,
                             cuuint32_t vdpDevice, void* vdpGetProcAddress) {
  return create_context(driver().cuVDPAUCtxCreate_v2, pCtx, device, flags, device, vdpDevice,
                        vdpGetProcAddress);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  const AppearingScope appearing;
  const CUresult result = ask_for_memory(driver().cuDevicePrimaryCtxRetain, pctx, dev);
  if (result == CUDA_SUCCESS && active()) {
    primary_retained(dev, *pctx);
    context_appeared(*pctx, dev);
  }
  if (result != CUDA_SUCCESS && active()) primary_refused(dev);
  if (result == CUDA_SUCCESS) watch_primary(dev, *pctx);
  return result;
}

CUresult cuCtxDestroy(CUcontext ctx) { return destroy_context(driver().cuCtxDestroy, ctx); }

CUresult cuCtxDestroy_v2(CUcontext ctx) { return destroy_context(driver().cuCtxDestroy_v2, ctx); }

CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  const CUresult result = ask(driver().cuCtxAttach, pctx, flags);
  if (result == CUDA_SUCCESS && active()) context_attached(*pctx);
  return result;
}

CUresult cuCtxDetach(CUcontext ctx) {
  if (active() && context_detached(ctx)) return ask(driver().cuCtxDetach, ctx);
  return destroy_context(driver().cuCtxDetach, ctx);
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  const CUresult result = ask(driver().cuCtxFromGreenCtx, pContext, hCtx);
  if (result == CUDA_SUCCESS && active()) green_context_appeared(*pContext);
  return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  return release_primary(driver().cuDevicePrimaryCtxRelease, dev);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return release_primary(driver().cuDevicePrimaryCtxRelease_v2, dev);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
  return reset_primary(driver().cuDevicePrimaryCtxReset, dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return reset_primary(driver().cuDevicePrimaryCtxReset_v2, dev);
}

CUresult cuInit(unsigned int Flags) {
  const CUresult result = ask(driver().cuInit, Flags);
  if (result == CUDA_SUCCESS) {
    cuda_started(driver().complete);
    tell_unknown_functions();
  }
  return result;
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  const CUresult result = ask(driver().cuGetProcAddress, symbol, pfn, cudaVersion, flags);
  if (result == CUDA_SUCCESS && pfn != nullptr && *pfn != nullptr) {
    reroute(symbol, cudaVersion, flags, pfn);
  }
  return result;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  const CUresult result =
      ask(driver().cuGetProcAddress_v2, symbol, pfn, cudaVersion, flags, symbolStatus);
  if (result == CUDA_SUCCESS && pfn != nullptr && *pfn != nullptr) {
    reroute(symbol, cudaVersion, flags, pfn);
  }
  return result;
}
