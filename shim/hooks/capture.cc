// SPDX-License-Identifier: Apache-2.0
// Stream captures: beginning and end (order/captures/captures.h).
#include "shim/entry/faces.h"
#include "shim/order/captures/captures.h"

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

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
