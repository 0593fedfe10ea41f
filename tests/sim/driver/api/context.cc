// SPDX-License-Identifier: Apache-2.0
//
// Contexts: creation, the thread's stack, synchronisation, events of a whole context, peers.
#include <mutex>

#include "api/api.h"
#include "exec/capture.h"
#include "exec/engine.h"
#include "exec/event.h"
#include "memory/device.h"
#include "memory/pool.h"

using namespace simcuda;

namespace {

// Runs work(Context&) for a handle; null means the current context where the call allows it.
template <class Work>
CUresult of_context(CUcontext handle, Work&& work) {
  if (handle == nullptr) return in_context(work);
  Context* context = find_context(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return context->alive() ? work(*context) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult create(CUcontext* pctx, unsigned flags, CUdevice dev) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = find_device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Context* context = create_context(*device, flags);
  const CUresult code = push_current(context);
  if (code == CUDA_SUCCESS) *pctx = context->handle();
  return code;
}

CUresult synchronize(Context& context) {
  {
    const std::lock_guard lock(exec_mutex());
    if (const CUresult code = refuse_context_call(context); code != CUDA_SUCCESS) return code;
  }
  wait_for_context(context);
  finish_late_frees(context);
  pools_after_wait();
  return CUDA_SUCCESS;
}

CUresult destroy(CUcontext handle) {
  Context* context = find_context(handle);
  if (context == nullptr || context->primary()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  context->end();
  if (current_context() == context) pop_current();
  return CUDA_SUCCESS;
}

CUresult push(CUcontext handle) {
  Context* context = find_context(handle);
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : push_current(context);
}

CUresult pop(CUcontext* pctx) {
  Context* context = pop_current();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = context->handle();
  return CUDA_SUCCESS;
}

CUresult limit_of(CUlimit limit, size_t* value) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      *value = 1024;
      return CUDA_SUCCESS;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      *value = size_t{1} << 20;
      return CUDA_SUCCESS;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      *value = size_t{8} << 20;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_UNSUPPORTED_LIMIT;
  }
}

// What the limit took before is given back when what it takes now is there.
CUresult set_limit(Context& context, CUlimit limit) {
  size_t known = 0;
  if (const CUresult code = limit_of(limit, &known); code != CUDA_SUCCESS) return code;
  TakenRef taken;
  const CUresult code = take_for(Call::cuCtxSetLimit, context, &taken);
  if (code != CUDA_SUCCESS || taken == nullptr) return code;
  const std::lock_guard lock(exec_mutex());
  context.limits[limit].swap(taken);
  return CUDA_SUCCESS;
}

// Peer access is a relation between two contexts on different devices.
CUresult change_peer(CUcontext handle, bool enable) {
  return in_context([&](Context& context) {
    Context* peer = find_context(handle);
    if (peer == nullptr || peer == &context) return CUDA_ERROR_INVALID_CONTEXT;
    if (&peer->device() == &context.device()) return CUDA_ERROR_INVALID_DEVICE;
    const std::lock_guard lock(exec_mutex());
    if (enable) {
      return context.peers.insert(peer).second ? CUDA_SUCCESS
                                               : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    }
    return context.peers.erase(peer) != 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  });
}

}  // namespace

extern "C" {

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return call(
      Call::cuCtxCreate_v2, [&] { return create(pctx, flags, dev); }, out("pctx", pctx),
      in("flags", flags), in("dev", dev));
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
  return call(
      Call::cuCtxCreate_v4, [&] { return create(pctx, flags, dev); }, out("pctx", pctx),
      in("flags", flags), in("dev", dev));
}

// What else these are for is not simulated.

CUresult cuGLCtxCreate_v2(CUcontext* pCtx, unsigned int Flags, CUdevice device) {
  return call(
      Call::cuGLCtxCreate_v2, [&] { return create(pCtx, Flags, device); }, out("pCtx", pCtx),
      in("Flags", Flags), in("device", device));
}

CUresult cuVDPAUCtxCreate_v2(CUcontext* pCtx, unsigned int flags, CUdevice device,
                             unsigned int vdpDevice, void* vdpGetProcAddress) {
  return call(
      Call::cuVDPAUCtxCreate_v2, [&] { return create(pCtx, flags, device); }, out("pCtx", pCtx),
      in("flags", flags), in("device", device), in("vdpDevice", vdpDevice));
}

CUresult cuCtxDestroy(CUcontext ctx) {
  return call(
      Call::cuCtxDestroy, [&] { return destroy(ctx); }, in("ctx", ctx));
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  return call(
      Call::cuCtxDestroy_v2, [&] { return destroy(ctx); }, in("ctx", ctx));
}

CUresult cuCtxPushCurrent(CUcontext ctx) {
  return call(Call::cuCtxPushCurrent, [&] { return push(ctx); });
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  return call(Call::cuCtxPushCurrent_v2, [&] { return push(ctx); });
}

CUresult cuCtxPopCurrent(CUcontext* pctx) {
  return call(Call::cuCtxPopCurrent, [&] { return pop(pctx); });
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  return call(Call::cuCtxPopCurrent_v2, [&] { return pop(pctx); });
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  return call(Call::cuCtxSetCurrent, [&] {
    Context* context = ctx == nullptr ? nullptr : find_context(ctx);
    if (ctx != nullptr && context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    set_current(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  return call(Call::cuCtxGetCurrent, [&] {
    if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pctx = reinterpret_cast<CUcontext>(current_context());
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return call(Call::cuCtxGetDevice, [&] {
    return in_context([&](Context& context) {
      if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *device = context.device().ordinal();
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  return call(Call::cuCtxGetDevice_v2, [&] {
    return of_context(ctx, [&](Context& context) {
      if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *device = context.device().ordinal();
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return call(Call::cuCtxGetFlags, [&] {
    return in_context([&](Context& context) {
      if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *flags = context.flags;
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuCtxSetFlags(unsigned int flags) {
  return call(Call::cuCtxSetFlags, [&] {
    return in_context([&](Context& context) {
      context.flags = flags;
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  return call(Call::cuCtxGetId, [&] {
    return of_context(ctx, [&](Context& context) {
      if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *ctxId = context.id();
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  return call(Call::cuCtxGetApiVersion, [&] {
    return of_context(ctx, [&](Context&) {
      if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *version = 3020;
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuCtxSynchronize() {
  return call(Call::cuCtxSynchronize, [] { return in_context(synchronize); });
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  return call(
      Call::cuCtxSynchronize_v2, [&] { return of_context(ctx, synchronize); }, in("ctx", ctx));
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  return call(
      Call::cuCtxRecordEvent,
      [&] {
        return of_context(hCtx, [&](Context& context) {
          const EventRef event = find_event(hEvent);
          return event == nullptr ? CUDA_ERROR_INVALID_HANDLE : record_context(context, event);
        });
      },
      in("hCtx", hCtx), in("hEvent", hEvent));
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  return call(
      Call::cuCtxWaitEvent,
      [&] {
        return of_context(hCtx, [&](Context& context) {
          const EventRef event = find_event(hEvent);
          return event == nullptr ? CUDA_ERROR_INVALID_HANDLE : context_waits(context, event);
        });
      },
      in("hCtx", hCtx), in("hEvent", hEvent));
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  return call(Call::cuCtxGetLimit, [&] {
    return in_context([&](Context&) {
      return pvalue == nullptr ? CUDA_ERROR_INVALID_VALUE : limit_of(limit, pvalue);
    });
  });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return call(Call::cuCtxSetLimit, [&] {
    return in_context([&](Context& context) { return set_limit(context, limit); });
  });
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return call(Call::cuCtxGetStreamPriorityRange, [&] {
    return in_context([&](Context&) {
      if (leastPriority != nullptr) *leastPriority = 0;
      if (greatestPriority != nullptr) *greatestPriority = -5;
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  return call(
      Call::cuCtxEnablePeerAccess,
      [&] { return Flags != 0 ? CUDA_ERROR_INVALID_VALUE : change_peer(peerContext, true); },
      in("peerContext", peerContext), in("Flags", Flags));
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  return call(
      Call::cuCtxDisablePeerAccess, [&] { return change_peer(peerContext, false); },
      in("peerContext", peerContext));
}

}  // extern "C"
