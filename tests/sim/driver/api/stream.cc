// SPDX-License-Identifier: Apache-2.0
//
// Streams, their synchronisation and host functions.
#include "api/api.h"
#include "exec/engine.h"
#include "exec/event.h"
#include "memory/pool.h"
#include "watch/oracle.h"

using namespace simcuda;

namespace {

CUresult create(Call id, CUstream* handle, unsigned flags, int priority) {
  if (handle == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING})) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return in_context(
      [&](Context& context) { return create_stream(id, context, flags, priority, handle); });
}

CUresult wait_for_stream(const StreamRef& stream) {
  Order order;
  const CUresult code = stream_order(stream, &order);
  if (code != CUDA_SUCCESS) return code;
  wait_for(std::move(order));
  pools_after_wait();
  return code;
}

CUresult stream_passed(const StreamRef& stream) {
  Order order;
  const CUresult code = stream_order(stream, &order);
  if (code != CUDA_SUCCESS) return code;
  host_asks();
  bool passed = false;
  {
    const std::lock_guard lock(exec_mutex());
    passed = has_passed(order);
    if (judging()) judge_question(order.promised, passed);
  }
  if (passed) pools_after_wait();
  return passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult launch_host(Call id, const StreamRef& stream, std::function<void()> fn) {
  Work work{.call = id, .calls_host = true};
  work.run = [fn = std::move(fn)] {
    const InCallback guard;
    fn();
  };
  return submit(stream, std::move(work));
}

// Answers a question about a stream into an out-parameter.
template <class Out, class Answer>
CUresult ask_stream(CUstream handle, DefaultStream kind, Out* out, Answer&& answer) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return on_stream(handle, kind, [&](const StreamRef& stream) {
    *out = answer(*stream);
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return call(
      Call::cuStreamCreate, [&] { return create(Call::cuStreamCreate, phStream, Flags, 0); },
      out("phStream", phStream), in("Flags", Flags));
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return call(
      Call::cuStreamCreateWithPriority,
      [&] { return create(Call::cuStreamCreateWithPriority, phStream, flags, priority); },
      out("phStream", phStream), in("flags", flags));
}

CUresult cuStreamDestroy(CUstream hStream) {
  return call(
      Call::cuStreamDestroy, [&] { return destroy_stream(hStream); }, stream(hStream));
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  return call(
      Call::cuStreamDestroy_v2, [&] { return destroy_stream(hStream); }, stream(hStream));
}

SIM_PAIR(cuStreamSynchronize, _ptsz, (CUstream hStream),
         return call(
             kCall, [&] { return on_stream(hStream, kDefault, wait_for_stream); },
             stream(hStream));)

SIM_PAIR(cuStreamQuery, _ptsz, (CUstream hStream),
         return call(
             kCall, [&] { return on_stream(hStream, kDefault, stream_passed); }, stream(hStream));)

SIM_PAIR(cuStreamWaitEvent, _ptsz, (CUstream hStream, CUevent hEvent, unsigned int Flags),
         return call(
             kCall,
             [&] {
               return on_stream(hStream, kDefault, [&](const StreamRef& waiter) {
                 const EventRef event = find_event(hEvent);
                 return event == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                         : wait_event(kCall, waiter, event);
               });
             },
             in("hEvent", hEvent), in("Flags", Flags), stream(hStream));)

SIM_PAIR(cuStreamGetId, _ptsz, (CUstream hStream, unsigned long long* streamId),
         return call(kCall, [&] {
           return ask_stream(hStream, kDefault, streamId, [](const Stream& s) { return s.id; });
         });)

SIM_PAIR(cuStreamGetFlags, _ptsz, (CUstream hStream, unsigned int* flags), return call(kCall, [&] {
           return ask_stream(hStream, kDefault, flags, [](const Stream& s) { return s.flags; });
         });)

SIM_PAIR(cuStreamGetPriority, _ptsz, (CUstream hStream, int* priority), return call(kCall, [&] {
           return ask_stream(hStream, kDefault, priority,
                             [](const Stream& s) { return s.priority; });
         });)

SIM_PAIR(cuStreamGetCtx, _ptsz, (CUstream hStream, CUcontext* pctx), return call(kCall, [&] {
           return ask_stream(hStream, kDefault, pctx, [](Stream& s) { return s.context.handle(); });
         });)

SIM_PAIR(cuStreamGetCtx_v2, _ptsz, (CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx),
         return call(kCall, [&] {
           if (pGreenCtx != nullptr) *pGreenCtx = nullptr;
           return ask_stream(hStream, kDefault, pCtx, [](Stream& s) { return s.context.handle(); });
         });)

SIM_PAIR(cuLaunchHostFunc, _ptsz, (CUstream hStream, CUhostFn fn, void* userData),
         return call(
             kCall,
             [&] {
               if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
               return on_stream(hStream, kDefault, [&](const StreamRef& target) {
                 return launch_host(kCall, target, [=] { fn(userData); });
               });
             },
             in("userData", userData), stream(hStream));)

SIM_PAIR(cuLaunchHostFunc_v2, _ptsz,
         (CUstream hStream, CUhostFn fn, void* userData, unsigned int syncMode),
         return call(
             kCall,
             [&] {
               if (fn == nullptr || syncMode > 1) return CUDA_ERROR_INVALID_VALUE;
               return on_stream(hStream, kDefault, [&](const StreamRef& target) {
                 return launch_host(kCall, target, [=] { fn(userData); });
               });
             },
             in("userData", userData), in("syncMode", syncMode), stream(hStream));)

SIM_PAIR(cuStreamAddCallback, _ptsz,
         (CUstream hStream, CUstreamCallback callback, void* userData, unsigned int flags),
         return call(
             kCall,
             [&] {
               if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
               return on_stream(hStream, kDefault, [&](const StreamRef& target) {
                 return launch_host(kCall, target,
                                    [=] { callback(hStream, CUDA_SUCCESS, userData); });
               });
             },
             in("userData", userData), in("flags", flags), stream(hStream));)

}  // extern "C"
