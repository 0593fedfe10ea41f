// SPDX-License-Identifier: Apache-2.0
// What can be asked about a graph, nodes that are added one by one, and objects that a graph keeps.

#include <cuda_runtime_api.h>

#include "tests/sim/cudart/state.h"

using namespace simcudart;

static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData));
static_assert(sizeof(cudaGraphNodeParams) == sizeof(CUgraphNodeParams));

cudaError_t cudaGraphAddNode(cudaGraphNode_t* out, cudaGraph_t graph,
                             const cudaGraphNode_t* dependencies, const cudaGraphEdgeData* edges,
                             size_t count, cudaGraphNodeParams* params) {
  return in_context([&](const Driver& d) {
    return d.cuGraphAddNode_(out, graph, dependencies,
                             reinterpret_cast<const CUgraphEdgeData*>(edges), count,
                             reinterpret_cast<CUgraphNodeParams*>(params));
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return without_context([&](const Driver& d) { return d.cuGraphGetNodes_(graph, nodes, count); });
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* dependencies,
                                         cudaGraphEdgeData* edges, size_t* count) {
  return without_context([&](const Driver& d) {
    return d.cuGraphNodeGetDependencies_(node, dependencies,
                                         reinterpret_cast<CUgraphEdgeData*>(edges), count);
  });
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* out, cudaGraph_t graph,
                                             unsigned default_value, unsigned flags) {
  return in_context([&](const Driver& d) {
    CUcontext context = nullptr;
    const CUresult result = d.cuCtxGetCurrent_(&context);
    if (result != CUDA_SUCCESS) return result;
    return d.cuGraphConditionalHandleCreate_(reinterpret_cast<CUgraphConditionalHandle*>(out),
                                             graph, context, default_value, flags);
  });
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* out, void* pointer, cudaHostFn_t destroy,
                                 unsigned references, unsigned flags) {
  return without_context([&](const Driver& d) {
    return d.cuUserObjectCreate_(out, pointer, destroy, references, flags);
  });
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  return without_context([&](const Driver& d) { return d.cuUserObjectRelease_(object, count); });
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count,
                                      unsigned flags) {
  return without_context(
      [&](const Driver& d) { return d.cuGraphRetainUserObject_(graph, object, count, flags); });
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned flags) {
  return without_context(
      [&](const Driver& d) { return d.cuGraphDebugDotPrint_(graph, path, flags); });
}
