// SPDX-License-Identifier: Apache-2.0
// Graphs: creation, instantiation, update and end. A block that a graph may use is not reused while
// the graph lives (order/captures/graphs.h).
#include "shim/order/barrier/work.h"
#include "shim/order/captures/graphs.h"

#include "shim/entry/driver.h"
#include "shim/order/ask.h"
#include "shim/order/submissions.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

template <typename Function, typename... Arguments>
CUresult instantiate(Function* real, CUgraphExec* exec, CUgraph graph, Arguments... arguments) {
  const SubmissionScope submission(/*visible=*/true);
  pay_debts();  // the call may upload the graph
  const CUresult result = ask_for_memory(real, exec, graph, arguments...);
  if (result == CUDA_SUCCESS && active()) {
    graph_instantiated(*exec, graph);
    exec_has_contexts_of(*exec, graph);
  }
  return result;
}

template <typename Function, typename... Arguments>
CUresult update(Function* real, CUgraphExec exec, CUgraph graph, Arguments... arguments) {
  const CUresult result = ask_with_idle_memory(real, exec, graph, arguments...);
  if (result == CUDA_SUCCESS && active()) {
    graph_updated(exec, graph);
    exec_has_contexts_of(exec, graph);
  }
  return result;
}

// A node of an executable graph gets new addresses, or the addresses of `child`.
template <typename Function, typename... Arguments>
CUresult edit(CUgraph child, Function* real, CUgraphExec exec, Arguments... arguments) {
  const CUresult result = ask(real, exec, arguments...);
  if (result == CUDA_SUCCESS && active()) {
    graph_exec_edited(exec, child);
    exec_contexts_changed(exec);
  }
  return result;
}

template <typename Function, typename... Arguments>
CUresult add_node(CUgraph child, Function* real, CUgraphNode* node, CUgraph graph,
                  Arguments... arguments) {
  const CUresult result = ask(real, node, graph, arguments...);
  if (result != CUDA_SUCCESS || !active()) return result;
  if (child != nullptr) child_added(graph, child);
  graph_contexts_changed();
  return result;
}

CUgraph child_in(const CUgraphNodeParams* params) {
  const bool any = params != nullptr && params->type == CU_GRAPH_NODE_TYPE_GRAPH;
  return any ? params->graph.graph : nullptr;
}

template <typename Handle>
CUresult destroy(CUresult (*real)(Handle), Handle handle) {
  if (!active()) return ask(real, handle);
  GraphLeaving leaving(handle);
  graph_contexts_gone(handle);
  const CUresult result = ask(real, handle);
  if (result == CUDA_SUCCESS) leaving.destroyed();
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

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return edit(nullptr, driver().cuGraphExecKernelNodeSetParams, hGraphExec, hNode, nodeParams);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return edit(nullptr, driver().cuGraphExecKernelNodeSetParams_v2, hGraphExec, hNode, nodeParams);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  return edit(nullptr, driver().cuGraphExecMemcpyNodeSetParams, hGraphExec, hNode, copyParams, ctx);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                                        CUcontext ctx) {
  return edit(nullptr, driver().cuGraphExecMemsetNodeSetParams, hGraphExec, hNode, memsetParams,
              ctx);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return edit(nullptr, driver().cuGraphExecBatchMemOpNodeSetParams, hGraphExec, hNode, nodeParams);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUgraph childGraph) {
  return edit(childGraph, driver().cuGraphExecChildGraphNodeSetParams, hGraphExec, hNode,
              childGraph);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams* nodeParams) {
  return edit(child_in(nodeParams), driver().cuGraphExecNodeSetParams, hGraphExec, hNode,
              nodeParams);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  return destroy(driver().cuGraphExecDestroy, hGraphExec);
}

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  const auto since = active() ? graph_begins() : 0;
  const CUresult result = ask(driver().cuGraphCreate, phGraph, flags);
  if (result == CUDA_SUCCESS && active()) graph_created(*phGraph, since);
  return result;
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  const CUresult result = ask(driver().cuGraphClone, phGraphClone, originalGraph);
  if (result == CUDA_SUCCESS && active()) graph_cloned(*phGraphClone, originalGraph);
  return result;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  CUgraph childGraph) {
  return add_node(childGraph, driver().cuGraphAddChildGraphNode, phGraphNode, hGraph, dependencies,
                  numDependencies, childGraph);
}

CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return add_node(child_in(nodeParams), driver().cuGraphAddNode, phGraphNode, hGraph, dependencies,
                  numDependencies, nodeParams);
}

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return add_node(child_in(nodeParams), driver().cuGraphAddNode_v2, phGraphNode, hGraph,
                  dependencies, dependencyData, numDependencies, nodeParams);
}

CUresult cuGraphAddNode_v3(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return add_node(child_in(nodeParams), driver().cuGraphAddNode_v3, phGraphNode, hGraph,
                  dependencies, dependencyData, numDependencies, nodeParams);
}

CUresult cuGraphDestroy(CUgraph hGraph) { return destroy(driver().cuGraphDestroy, hGraph); }
