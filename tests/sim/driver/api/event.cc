// SPDX-License-Identifier: Apache-2.0
//
// Events.
#include "exec/event.h"

#include "api/api.h"
#include "memory/pool.h"

using namespace simcuda;

namespace {

// Runs work(EventRef) for a handle that names an event.
template <class Work>
CUresult of_event(CUevent handle, Work&& work) {
  const EventRef event = find_event(handle);
  return event == nullptr ? CUDA_ERROR_INVALID_HANDLE : work(event);
}

CUresult record(Call id, DefaultStream kind, CUevent handle, CUstream target, unsigned flags) {
  return of_event(handle, [&](const EventRef& event) {
    return on_stream(target, kind, [&](const StreamRef& stream) {
      return record_event(id, event, stream, flags);
    });
  });
}

CUresult wait_for_event(const EventRef& event) {
  const CUresult code = synchronize_event(event);
  if (code == CUDA_SUCCESS) pools_after_wait();
  return code;
}

CUresult event_passed(const EventRef& event) {
  const CUresult code = query_event(event);
  if (code == CUDA_SUCCESS) pools_after_wait();
  return code;
}

CUresult elapsed(float* milliseconds, CUevent start, CUevent end) {
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return of_event(start, [&](const EventRef& from) {
    return of_event(end, [&](const EventRef& to) { return elapsed_ms(from, to, milliseconds); });
  });
}

}  // namespace

extern "C" {

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  return call(
      Call::cuEventCreate,
      [&] {
        constexpr unsigned kKnown =
            CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
        if (phEvent == nullptr || (Flags & ~kKnown)) return CUDA_ERROR_INVALID_VALUE;
        const bool timed = (Flags & CU_EVENT_DISABLE_TIMING) == 0;
        if (timed && (Flags & CU_EVENT_INTERPROCESS) != 0) return CUDA_ERROR_INVALID_VALUE;
        return in_context([&](Context& context) { return create_event(context, Flags, phEvent); });
      },
      out("phEvent", phEvent), in("Flags", Flags));
}

CUresult cuEventDestroy(CUevent hEvent) {
  return call(
      Call::cuEventDestroy, [&] { return destroy_event(hEvent); }, in("hEvent", hEvent));
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  return call(
      Call::cuEventDestroy_v2, [&] { return destroy_event(hEvent); }, in("hEvent", hEvent));
}

SIM_PAIR(cuEventRecord, _ptsz, (CUevent hEvent, CUstream hStream),
         return call(
             kCall, [&] { return record(kCall, kDefault, hEvent, hStream, 0); },
             in("hEvent", hEvent), stream(hStream));)

SIM_PAIR(cuEventRecordWithFlags, _ptsz, (CUevent hEvent, CUstream hStream, unsigned int flags),
         return call(
             kCall, [&] { return record(kCall, kDefault, hEvent, hStream, flags); },
             in("hEvent", hEvent), in("flags", flags), stream(hStream));)

CUresult cuEventQuery(CUevent hEvent) {
  return call(
      Call::cuEventQuery, [&] { return of_event(hEvent, event_passed); }, in("hEvent", hEvent));
}

CUresult cuEventSynchronize(CUevent hEvent) {
  return call(
      Call::cuEventSynchronize, [&] { return of_event(hEvent, wait_for_event); },
      in("hEvent", hEvent));
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  return call(
      Call::cuIpcGetEventHandle,
      [&] {
        if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return of_event(event,
                        [&](const EventRef& found) { return get_event_handle(found, pHandle); });
      },
      in("event", event));
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  return call(
      Call::cuIpcOpenEventHandle,
      [&] {
        if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return in_context(
            [&](Context& context) { return open_event_handle(context, handle, phEvent); });
      },
      out("phEvent", phEvent));
}

CUresult cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return call(Call::cuEventElapsedTime, [&] { return elapsed(pMilliseconds, hStart, hEnd); });
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return call(Call::cuEventElapsedTime_v2, [&] { return elapsed(pMilliseconds, hStart, hEnd); });
}

}  // extern "C"
