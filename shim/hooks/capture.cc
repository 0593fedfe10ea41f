// SPDX-License-Identifier: Apache-2.0
// Stream captures: beginning and end.
#include "shim/hooks/ask.h"
#include "shim/order/capture_gate.h"
#include "shim/order/graphs.h"
#include "shim/order/streams.h"

namespace cistern::shim {
namespace {

// The context of a stream that can capture; another one may be current.
CUcontext context_of_stream(CUstream stream) {
  const Driver& d = driver();
  CUcontext context = nullptr;
  if (d.cuStreamGetCtx == nullptr || d.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) {
    d.cuCtxGetCurrent(&context);
  }
  return context;
}

// A capture begins: ours and the program's calls are kept apart from before it to its end.
template <typename Kind, typename Function, typename... Arguments>
CUresult begin_capture(Function* real, CUstream stream, Arguments... arguments) {
  // Inside a host function on a stream the driver refuses every call, and one of ours that waits
  // for this very function may hold the gate.
  CUcontext context = nullptr;
  if (!active() || driver().cuCtxGetCurrent(&context) == CUDA_ERROR_NOT_PERMITTED) {
    return ask(real, stream, arguments...);
  }
  CaptureGate& gate = capture_gate();
  gate.announce();
  captures_changed();
  const CUresult result = ask(real, stream, arguments...);
  if (result == CUDA_SUCCESS) {
    gate.began(Kind::name(stream), context_of_stream(Kind::name(stream)));
    stream_seen(stream);
  } else {
    gate.withdraw();
    captures_changed();
  }
  return result;
}

// An invalidated capture ends with an error, too, and a wrong call leaves it as it was: the stream
// knows. It is asked before the call as well, because a name may stand for another thread's stream,
// whose capture this call does not end.
template <typename Kind, typename Function>
CUresult end_capture(Function* real, CUstream stream, CUgraph* graph) {
  if (!active()) return ask(real, stream, graph);
  bool before = false, after = false;
  const bool ends = captures<Kind>(stream, &before) != CUDA_SUCCESS || before;
  const CUresult result = ask(real, stream, graph);
  if (result != CUDA_SUCCESS) captures<Kind>(stream, &after);
  if (!ends || after) return result;
  if (result == CUDA_SUCCESS && graph != nullptr && *graph != nullptr) {
    graph_captured(*graph, context_of_stream(Kind::name(stream)));
  }
  capture_gate().ended(Kind::name(stream));
  captures_changed();
  return result;
}

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuStreamBeginCapture(CUstream hStream) {
  return begin_capture<Legacy>(driver().cuStreamBeginCapture, hStream);
}

CUresult cuStreamBeginCapture_ptsz(CUstream hStream) {
  return begin_capture<PerThread>(driver().cuStreamBeginCapture_ptsz, hStream);
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return begin_capture<Legacy>(driver().cuStreamBeginCapture_v2, hStream, mode);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
  return begin_capture<PerThread>(driver().cuStreamBeginCapture_v2_ptsz, hStream, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  return begin_capture<Legacy>(driver().cuStreamBeginCaptureToGraph, hStream, hGraph, dependencies,
                               dependencyData, numDependencies, mode);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
                                          const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* dependencyData,
                                          size_t numDependencies, CUstreamCaptureMode mode) {
  return begin_capture<PerThread>(driver().cuStreamBeginCaptureToGraph_ptsz, hStream, hGraph,
                                  dependencies, dependencyData, numDependencies, mode);
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  return end_capture<Legacy>(driver().cuStreamEndCapture, hStream, phGraph);
}

CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph* phGraph) {
  return end_capture<PerThread>(driver().cuStreamEndCapture_ptsz, hStream, phGraph);
}
