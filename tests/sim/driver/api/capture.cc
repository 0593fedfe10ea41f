// SPDX-License-Identifier: Apache-2.0
//
// Stream capture and the graphs it makes.
#include "exec/capture.h"

#include "api/api.h"

using namespace simcuda;

namespace {

CUresult begin(CUstream handle, DefaultStream kind, CUstreamCaptureMode mode,
               const NamedGraph& named = {}) {
  const bool known =
      mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  return on_stream(handle, kind,
                   [&](const StreamRef& stream) { return begin_capture(stream, mode, named); });
}

CUresult begin_in_graph(CUstream handle, DefaultStream kind, CUstreamCaptureMode mode,
                        CUgraph graph, const CUgraphNode* after, size_t count) {
  NamedGraph named{.graph = find_graph(graph)};
  if (named.graph == nullptr || (after == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (graph_of_node(after[i]) != named.graph) return CUDA_ERROR_INVALID_VALUE;
    named.after.push_back(reinterpret_cast<GraphNode*>(after[i]));
  }
  return begin(handle, kind, mode, named);
}

CUresult begin_again(CUstream handle, DefaultStream kind, CUstreamCaptureMode mode, CUgraph graph,
                     CUgraphRecaptureCallback tell, void* user_data) {
  const NamedGraph named{
      .graph = find_graph(graph), .again = true, .tell = tell, .user_data = user_data};
  return named.graph == nullptr ? CUDA_ERROR_INVALID_VALUE : begin(handle, kind, mode, named);
}

// Reports a capture's state to whichever out-parameters the caller gave.
CUresult capture_info(CUstream handle, DefaultStream kind, CUstreamCaptureStatus* status,
                      cuuint64_t* id, CUgraph* graph, const CUgraphNode** dependencies,
                      size_t* count) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return on_stream(handle, kind, [&](const StreamRef& stream) {
    CaptureState state;
    const CUresult code = capture_state(stream, &state);
    if (code != CUDA_SUCCESS) return code;
    *status = state.status;
    if (state.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (id != nullptr) *id = state.id;
    if (graph != nullptr) *graph = state.graph;
    if (dependencies != nullptr) {
      *dependencies = reinterpret_cast<const CUgraphNode*>(state.frontier);
    }
    if (count != nullptr) *count = state.frontier_size;
    return CUDA_SUCCESS;
  });
}

CUresult update_dependencies(CUstream handle, DefaultStream kind, CUgraphNode* nodes, size_t count,
                             unsigned flags) {
  const bool add = flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES;
  if ((!add && flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES) || (nodes == nullptr && count != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto list = reinterpret_cast<GraphNode**>(nodes);
  return on_stream(handle, kind, [&](const StreamRef& stream) {
    return update_frontier(stream, {list, list + count}, add);
  });
}

// As many as there is room for; without a list, only their number.
CUresult dependencies_of(CUgraphNode handle, CUgraphNode* dependencies, size_t* count) {
  const auto graph = graph_of_node(handle);
  if (graph == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& all = reinterpret_cast<const GraphNode*>(handle)->dependencies;
  for (size_t i = 0; dependencies != nullptr && i < *count; ++i) {
    dependencies[i] = i < all.size() ? reinterpret_cast<CUgraphNode>(all[i]) : nullptr;
  }
  if (dependencies == nullptr || *count > all.size()) *count = all.size();
  return CUDA_SUCCESS;
}

CUresult instantiate_graph(Call id, CUgraphExec* exec, CUgraph handle) {
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto graph = find_graph(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return instantiate(id, current_context(), *graph, exec);
}

}  // namespace

extern "C" {

SIM_PAIR(cuStreamBeginCapture_v2, _ptsz, (CUstream hStream, CUstreamCaptureMode mode),
         return call(
             kCall, [&] { return begin(hStream, kDefault, mode); }, in("mode", mode),
             stream(hStream));)

// Edges that are not the plain kind need kernels that signal early: there are none.
SIM_PAIR(cuStreamBeginCaptureToGraph, _ptsz,
         (CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
          const CUgraphEdgeData* dependencyData, size_t numDependencies, CUstreamCaptureMode mode),
         return call(
             kCall,
             [&] {
               return begin_in_graph(hStream, kDefault, mode, hGraph, dependencies,
                                     numDependencies);
             },
             in("hGraph", hGraph), in("mode", mode), stream(hStream));)

SIM_PAIR(cuStreamBeginRecaptureToGraph, _ptsz,
         (CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
          CUgraphRecaptureCallback callbackFunc, void* userData),
         return call(
             kCall,
             [&] { return begin_again(hStream, kDefault, mode, hGraph, callbackFunc, userData); },
             in("mode", mode), in("hGraph", hGraph), stream(hStream));)

// There is no graphics interface whose command list the work could become part of: it is forgotten.
SIM_PAIR(cuStreamBeginCaptureToCig, _ptsz,
         (CUstream hStream, CUstreamCigCaptureParams* streamCigCaptureParams),
         return call(
             kCall,
             [&] {
               if (streamCigCaptureParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
               return on_stream(hStream, kDefault, [&](const StreamRef& captured) {
                 return begin_capture(captured, CU_STREAM_CAPTURE_MODE_RELAXED, {},
                                      /*no_graph=*/true);
               });
             },
             stream(hStream));)

SIM_PAIR(cuStreamEndCaptureToCig, _ptsz, (CUstream hStream),
         return call(
             kCall,
             [&] {
               return on_stream(hStream, kDefault, [&](const StreamRef& captured) {
                 return end_capture(captured, nullptr);
               });
             },
             stream(hStream));)

SIM_PAIR(cuStreamEndCapture, _ptsz, (CUstream hStream, CUgraph* phGraph),
         return call(
             kCall,
             [&] {
               if (phGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
               return on_stream(hStream, kDefault, [&](const StreamRef& captured) {
                 return end_capture(captured, phGraph);
               });
             },
             out("phGraph", phGraph), stream(hStream));)

SIM_PAIR(cuStreamIsCapturing, _ptsz, (CUstream hStream, CUstreamCaptureStatus* captureStatus),
         return call(kCall, [&] {
           return capture_info(hStream, kDefault, captureStatus, nullptr, nullptr, nullptr,
                               nullptr);
         });)

SIM_PAIR(cuStreamGetCaptureInfo, _ptsz,
         (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out),
         return call(kCall, [&] {
           return capture_info(hStream, kDefault, captureStatus_out, id_out, nullptr, nullptr,
                               nullptr);
         });)

SIM_PAIR(cuStreamGetCaptureInfo_v2, _ptsz,
         (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
          CUgraph* graph_out, const CUgraphNode** dependencies_out, size_t* numDependencies_out),
         return call(kCall, [&] {
           return capture_info(hStream, kDefault, captureStatus_out, id_out, graph_out,
                               dependencies_out, numDependencies_out);
         });)

SIM_PAIR(cuStreamGetCaptureInfo_v3, _ptsz,
         (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
          CUgraph* graph_out, const CUgraphNode** dependencies_out,
          const CUgraphEdgeData** edgeData_out, size_t* numDependencies_out),
         return call(kCall, [&] {
           if (edgeData_out != nullptr) *edgeData_out = nullptr;
           return capture_info(hStream, kDefault, captureStatus_out, id_out, graph_out,
                               dependencies_out, numDependencies_out);
         });)

SIM_PAIR(cuStreamUpdateCaptureDependencies, _ptsz,
         (CUstream hStream, CUgraphNode* dependencies, size_t numDependencies, unsigned int flags),
         return call(kCall, [&] {
           return update_dependencies(hStream, kDefault, dependencies, numDependencies, flags);
         });)

// Edges that are not the plain kind need kernels that signal early: there are none.
SIM_PAIR(cuStreamUpdateCaptureDependencies_v2, _ptsz,
         (CUstream hStream, CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
          size_t numDependencies, unsigned int flags),
         return call(kCall, [&] {
           return update_dependencies(hStream, kDefault, dependencies, numDependencies, flags);
         });)

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                    size_t* numDependencies) {
  return call(Call::cuGraphNodeGetDependencies,
              [&] { return dependencies_of(hNode, dependencies, numDependencies); });
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                       CUgraphEdgeData* edgeData, size_t* numDependencies) {
  return call(Call::cuGraphNodeGetDependencies_v2, [&] {
    const size_t room = numDependencies == nullptr ? 0 : *numDependencies;
    const CUresult code = dependencies_of(hNode, dependencies, numDependencies);
    for (size_t i = 0; code == CUDA_SUCCESS && edgeData != nullptr && i < room; ++i) {
      edgeData[i] = {};
    }
    return code;
  });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return call(Call::cuThreadExchangeStreamCaptureMode, [&] { return exchange_thread_mode(mode); });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  return call(
      Call::cuGraphInstantiateWithFlags,
      [&] { return instantiate_graph(Call::cuGraphInstantiateWithFlags, phGraphExec, hGraph); },
      out("phGraphExec", phGraphExec), in("hGraph", hGraph), in("flags", flags));
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  return call(
      Call::cuGraphInstantiate_v2,
      [&] { return instantiate_graph(Call::cuGraphInstantiate_v2, phGraphExec, hGraph); },
      out("phGraphExec", phGraphExec), in("hGraph", hGraph));
}

SIM_PAIR(cuGraphInstantiateWithParams, _ptsz,
         (CUgraphExec * phGraphExec, CUgraph hGraph,
          CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams),
         return call(
             kCall,
             [&] {
               if (instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
               const CUresult code = instantiate_graph(kCall, phGraphExec, hGraph);
               instantiateParams->hErrNode_out = nullptr;
               instantiateParams->result_out = code == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                                                                    : CUDA_GRAPH_INSTANTIATE_ERROR;
               return code;
             },
             out("phGraphExec", phGraphExec), in("hGraph", hGraph));)

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  return call(
      Call::cuGraphExecUpdate_v2,
      [&] {
        const auto graph = find_graph(hGraph);
        if (graph == nullptr || resultInfo == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const CUresult code = update_exec(hGraphExec, *graph);
        *resultInfo = {};
        resultInfo->result =
            code == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR;
        return code;
      },
      in("hGraphExec", hGraphExec), in("hGraph", hGraph));
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  return call(
      Call::cuGraphDestroy, [&] { return forget_graph(hGraph); }, in("hGraph", hGraph));
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  return call(
      Call::cuGraphExecDestroy, [&] { return forget_exec(hGraphExec); },
      in("hGraphExec", hGraphExec));
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  return call(Call::cuGraphGetNodes, [&] {
    const auto graph = find_graph(hGraph);
    if (graph == nullptr || numNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; nodes != nullptr && i < *numNodes; ++i) {
      nodes[i] =
          i < graph->nodes.size() ? reinterpret_cast<CUgraphNode>(&graph->nodes[i]) : nullptr;
    }
    if (nodes == nullptr || *numNodes > graph->nodes.size()) *numNodes = graph->nodes.size();
    return CUDA_SUCCESS;
  });
}

SIM_PAIR(cuGraphLaunch, _ptsz, (CUgraphExec hGraphExec, CUstream hStream),
         return call(
             kCall,
             [&] {
               return on_stream(hStream, kDefault, [&](const StreamRef& target) {
                 return launch_graph(kCall, hGraphExec, target);
               });
             },
             in("hGraphExec", hGraphExec), stream(hStream));)

}  // extern "C"
