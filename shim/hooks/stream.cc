// SPDX-License-Identifier: Apache-2.0
// Streams: creation and destruction, and the calls with which programs wait for their kernels or
// query them. A kernel's fault usually shows here first, and ask() records it (order/ask.h). The
// scratch cache releases a stream's blocks before that stream is synchronised (scratch.h).
// Reclamation does not rely on these calls.
#include "shim/order/streams/stream_registry.h"

#include "shim/entry/driver.h"
#include "shim/kinds/stream_ordered/scratch.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/debts.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/captures/graphs.h"
#include "shim/order/contexts/context.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/process/settings.h"
#include "shim/watch/watch.h"

namespace cistern::shim {
namespace {

template <typename Function, typename... Arguments>
CUresult create_stream(Function* real, CUstream* out, unsigned flags, Arguments... arguments) {
  const CUresult result = ask_with_idle_memory(real, out, flags, arguments...);
  if (result == CUDA_SUCCESS) stream_appeared(*out, flags);
  return result;
}

// A capture ends with its stream. This checks for a capture before the driver destroys the stream:
// afterwards a new stream may have the same handle, and a capture of its own.
template <typename Function>
CUresult destroy_stream(Function* real, CUstream stream) {
  if (scratch_on()) scratch_end_stream(stream);
  const bool captures = active() && capture_gate().capturing(stream);
  if (any_debts()) forget_waits_of(stream);
  visible_work_leaves(stream);
  StreamLeaving leaving(stream);
  const CUresult result = ask(real, stream);
  leaving.done(result == CUDA_SUCCESS);
  if (result == CUDA_SUCCESS && captures) {
    capture_gate().ended(stream);
    captures_changed();
  }
  return result;
}

CUresult waited(CUresult result) {
  if (result == CUDA_SUCCESS) watch_synchronised();
  if (active()) current_context();  // notices a context whose creation no hook saw
  return result;
}

// With the driver alone, a free of this thread would have waited for this work; its debt is waited
// for here. Another thread could then have made its query while that free still waited. So it gets
// the driver's answer, unless the thread that freed has ended.
template <typename Function, typename... Arguments>
CUresult ask_if_done(Function* real, Arguments... arguments) {
  const CUresult result = ask(real, arguments...);
  const ThreadId thread = debtor.load();
  const bool behind = thread == this_thread_id() || thread == kEndedDebtor;
  if (result != CUDA_ERROR_NOT_READY || !behind) return result;
  pay_debts(PaidBy::query);
  return ask(real, arguments...);
}

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return create_stream(driver().cuStreamCreate, phStream, Flags);
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return create_stream(driver().cuStreamCreateWithPriority, phStream, flags, priority);
}

CUresult cuStreamDestroy(CUstream hStream) {
  return destroy_stream(driver().cuStreamDestroy, hStream);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  return destroy_stream(driver().cuStreamDestroy_v2, hStream);
}

CUresult cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return ask_if_done(driver().cuEventElapsedTime, pMilliseconds, hStart, hEnd);
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return ask_if_done(driver().cuEventElapsedTime_v2, pMilliseconds, hStart, hEnd);
}

CUresult cuEventQuery(CUevent hEvent) { return ask_if_done(driver().cuEventQuery, hEvent); }

CUresult cuStreamQuery(CUstream hStream) { return ask_if_done(driver().cuStreamQuery, hStream); }

CUresult cuStreamQuery_ptsz(CUstream hStream) {
  return ask_if_done(driver().cuStreamQuery_ptsz, hStream);
}

CUresult cuEventSynchronize(CUevent hEvent) {
  return waited(ask(driver().cuEventSynchronize, hEvent));
}

CUresult cuStreamSynchronize(CUstream hStream) {
  if (scratch_on()) scratch_empty_stream(Legacy::name(hStream));
  return waited(ask(driver().cuStreamSynchronize, hStream));
}

CUresult cuStreamSynchronize_ptsz(CUstream hStream) {
  if (scratch_on()) scratch_empty_stream(PerThread::name(hStream));
  return waited(ask(driver().cuStreamSynchronize_ptsz, hStream));
}
