// SPDX-License-Identifier: Apache-2.0
// Graphs: instantiation, update and end. A block that a graph may use is not reused while the graph
// lives (order/captures/graphs.h).
#include "shim/order/captures/graphs.h"

#include "shim/entry/faces.h"
#include "shim/order/ask.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

template <typename Function, typename... Arguments>
CUresult instantiate(Function* real, CUgraphExec* exec, CUgraph graph, Arguments... arguments) {
  const CUresult result = ask_for_memory(real, exec, graph, arguments...);
  if (result == CUDA_SUCCESS && active()) graph_instantiated(*exec, graph);
  return result;
}

template <typename Function, typename... Arguments>
CUresult update(Function* real, CUgraphExec exec, Arguments... arguments) {
  const CUresult result = ask(real, exec, arguments...);
  if (result == CUDA_SUCCESS && active()) graph_updated(exec);
  return result;
}

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                            char* logBuffer, size_t bufferSize) {
  return instantiate(driver().cuGraphInstantiate, phGraphExec, hGraph, phErrorNode, logBuffer,
                     bufferSize);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  return instantiate(driver().cuGraphInstantiate_v2, phGraphExec, hGraph, phErrorNode, logBuffer,
                     bufferSize);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  return instantiate(driver().cuGraphInstantiateWithFlags, phGraphExec, hGraph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  return instantiate(driver().cuGraphInstantiateWithParams, phGraphExec, hGraph, instantiateParams);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  return instantiate(driver().cuGraphInstantiateWithParams_ptsz, phGraphExec, hGraph,
                     instantiateParams);
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode,
                           CUgraphExecUpdateResult* updateResult) {
  return update(driver().cuGraphExecUpdate, hGraphExec, hGraph, hErrorNode, updateResult);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  return update(driver().cuGraphExecUpdate_v2, hGraphExec, hGraph, resultInfo);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  const CUresult result = ask(driver().cuGraphExecDestroy, hGraphExec);
  if (result == CUDA_SUCCESS && active()) graph_exec_destroyed(hGraphExec);
  return result;
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  const CUresult result = ask(driver().cuGraphDestroy, hGraph);
  if (result == CUDA_SUCCESS && active()) graph_destroyed(hGraph);
  return result;
}
