// SPDX-License-Identifier: Apache-2.0
// Streams: creation and destruction, the calls with which programs wait for their kernels or query
// them, and captures. A kernel's fault usually shows in a wait or a query first, and ask() records
// it (order/ask.h). The scratch cache releases a stream's blocks before that stream is synchronised
// (scratch.h). Reclamation does not rely on these calls. Any thread.
#include "shim/order/streams/stream_marks.h"

#include "shim/entry/driver.h"
#include "shim/kinds/stream_ordered/scratch.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/barrier/work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/captures/graphs.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/context_life.h"
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

// --- Stream captures as the program begins and ends them. From shortly before a capture begins
// until it ends, Cistern makes no driver calls of its own (capture_gate.h), and frees park their
// blocks (graphs.h).

namespace cistern::shim {
namespace {

// `begin` asks the driver to begin a capture on `stream`. `Kind`: what that call means by stream 0
// (ask.h). `into_graph`: the capture adds to a graph that the program names.
template <typename Kind, typename Begin>
CUresult begin_capture(CUstream stream, Begin begin, bool into_graph = false) {
  // Inside a host function on a stream the driver refuses every call. Do not wait for the gate
  // there: the call of ours that is inside the gate may itself wait for this host function.
  CUcontext context = nullptr;
  if (!active() || driver().cuCtxGetCurrent(&context) == CUDA_ERROR_NOT_PERMITTED) return begin();
  CaptureGate& gate = capture_gate();
  const alloc::Epoch since = graph_begins();
  gate.announce();
  pay_debts();  // no new debt begins from here on
  captures_changed();
  const CUresult result = begin();
  if (result == CUDA_SUCCESS) {
    current_context();  // notices a context whose creation no hook saw
    notice_context_of(Kind::name(stream));
    gate.began(Kind::name(stream), context_of_stream(Kind::name(stream)), since, into_graph);
    stream_seen(stream);
    capture_began(Kind::name(stream), context_of_stream(Kind::name(stream)), into_graph);
  } else {
    gate.withdraw();
  }
  captures_changed();
  return result;
}

// `end` asks the driver to end the capture. If that fails, this asks whether the stream still
// captures: an invalidated capture ends with an error, but a wrong call leaves the capture as it
// was. This also asks before the call: the handle may name another thread's stream as well, and
// this call does not end a capture of that stream.
template <typename Kind, typename End>
CUresult end_capture(CUstream stream, CUgraph* graph, End end) {
  if (!active()) return end();
  bool before = false, after = false;
  const bool ends = captures<Kind>(stream, &before) != CUDA_SUCCESS || before;
  const EndingCapture ending(Kind::name(stream));
  const CUresult result = end();
  if (result != CUDA_SUCCESS) captures<Kind>(stream, &after);
  if (!ends || after) return result;
  ending.ended(result == CUDA_SUCCESS && graph != nullptr ? *graph : nullptr);
  if (result == CUDA_SUCCESS && graph != nullptr && *graph != nullptr) {
    graph_captured(*graph, capture_gate().capture_of(Kind::name(stream)));
  }
  capture_gate().ended(Kind::name(stream));
  captures_changed();
  return result;
}

// Ends a capture that makes no graph: the captured work is in a command list of a graphics
// interface. It is not documented whether cuStreamIsCapturing reports such a capture, so a
// successful call is enough.
template <typename Kind, typename End>
CUresult end_capture_without_graph(CUstream stream, End end) {
  if (!active()) return end();
  bool before = false, after = false;
  captures<Kind>(stream, &before);
  const EndingCapture ending(Kind::name(stream));
  const CUresult result = end();
  if (result != CUDA_SUCCESS && (captures<Kind>(stream, &after), !before || after)) return result;
  ending.ended(nullptr);
  capture_gate().ended(Kind::name(stream));
  captures_changed();
  return result;
}

}  // namespace
}  // namespace cistern::shim

CUresult cuStreamBeginCapture(CUstream hStream) {
  return begin_capture<Legacy>(hStream,
                               [=] { return ask(driver().cuStreamBeginCapture, hStream); });
}

CUresult cuStreamBeginCapture_ptsz(CUstream hStream) {
  return begin_capture<PerThread>(hStream,
                                  [=] { return ask(driver().cuStreamBeginCapture_ptsz, hStream); });
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return begin_capture<Legacy>(
      hStream, [=] { return ask(driver().cuStreamBeginCapture_v2, hStream, mode); });
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
  return begin_capture<PerThread>(
      hStream, [=] { return ask(driver().cuStreamBeginCapture_v2_ptsz, hStream, mode); });
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  const auto begin = [=] {
    return ask(driver().cuStreamBeginCaptureToGraph, hStream, hGraph, dependencies, dependencyData,
               numDependencies, mode);
  };
  return begin_capture<Legacy>(hStream, begin, /*into_graph=*/true);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
                                          const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* dependencyData,
                                          size_t numDependencies, CUstreamCaptureMode mode) {
  const auto begin = [=] {
    return ask(driver().cuStreamBeginCaptureToGraph_ptsz, hStream, hGraph, dependencies,
               dependencyData, numDependencies, mode);
  };
  return begin_capture<PerThread>(hStream, begin, /*into_graph=*/true);
}

CUresult cuStreamBeginRecaptureToGraph(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
                                       CUgraphRecaptureCallback callbackFunc, void* userData) {
  const auto begin = [=] {
    return ask(driver().cuStreamBeginRecaptureToGraph, hStream, mode, hGraph, callbackFunc,
               userData);
  };
  return begin_capture<Legacy>(hStream, begin, /*into_graph=*/true);
}

CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream hStream, CUstreamCaptureMode mode,
                                            CUgraph hGraph, CUgraphRecaptureCallback callbackFunc,
                                            void* userData) {
  const auto begin = [=] {
    return ask(driver().cuStreamBeginRecaptureToGraph_ptsz, hStream, mode, hGraph, callbackFunc,
               userData);
  };
  return begin_capture<PerThread>(hStream, begin, /*into_graph=*/true);
}

CUresult cuStreamBeginCaptureToCig(CUstream hStream,
                                   CUstreamCigCaptureParams* streamCigCaptureParams) {
  return begin_capture<Legacy>(hStream, [=] {
    return ask(driver().cuStreamBeginCaptureToCig, hStream, streamCigCaptureParams);
  });
}

CUresult cuStreamBeginCaptureToCig_ptsz(CUstream hStream,
                                        CUstreamCigCaptureParams* streamCigCaptureParams) {
  return begin_capture<PerThread>(hStream, [=] {
    return ask(driver().cuStreamBeginCaptureToCig_ptsz, hStream, streamCigCaptureParams);
  });
}

CUresult cuStreamEndCaptureToCig(CUstream hStream) {
  return end_capture_without_graph<Legacy>(
      hStream, [=] { return ask(driver().cuStreamEndCaptureToCig, hStream); });
}

CUresult cuStreamEndCaptureToCig_ptsz(CUstream hStream) {
  return end_capture_without_graph<PerThread>(
      hStream, [=] { return ask(driver().cuStreamEndCaptureToCig_ptsz, hStream); });
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  return end_capture<Legacy>(hStream, phGraph,
                             [=] { return ask(driver().cuStreamEndCapture, hStream, phGraph); });
}

CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph* phGraph) {
  return end_capture<PerThread>(
      hStream, phGraph, [=] { return ask(driver().cuStreamEndCapture_ptsz, hStream, phGraph); });
}
