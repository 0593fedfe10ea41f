// SPDX-License-Identifier: Apache-2.0
//
// Graphs that a program builds node by node: of copies, fills and empty nodes.
// What a node does is recorded as a capture would, on a stream that exists for it only.
#include "api/api.h"
#include "api/copy_box.h"
#include "exec/capture.h"

using namespace simcuda;

namespace {

// Where the work of one node is recorded. A relaxed capture of a stream that no list has disturbs
// no call of the program.
class Recorder {
 public:
  explicit Recorder(Context& context)
      : stream_(
            std::make_shared<Stream>(context, Stream::Role::kCreated, CU_STREAM_NON_BLOCKING, 0)) {
    begin_capture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED, {}, /*no_graph=*/true);
  }
  ~Recorder() { end_capture(stream_, nullptr); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  const StreamRef& stream() const { return stream_; }
  // Of an empty node nothing is recorded.
  Work take() {
    auto& nodes = stream_->capture->graph->nodes;
    return nodes.empty() ? Work{} : std::move(nodes.front().work);
  }

 private:
  StreamRef stream_;
};

CUresult record_node(Call id, const StreamRef& stream, const CUgraphNodeParams& params) {
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return copy_3d_on(id, stream, params.memcpy.copyParams, Timing::kAsynchronous);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto& fill_of = params.memset;
      return fill(id, stream,
                  {fill_of.dst, fill_of.pitch, fill_of.value, fill_of.elementSize, fill_of.width,
                   fill_of.height},
                  Timing::kAsynchronous);
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// The context on which a node runs is that of the launching stream here, whatever it names.
CUresult work_of(Call id, const CUgraphNodeParams* params, Work* work) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return in_context([&](Context& context) {
    Recorder recorder(context);
    const CUresult code = record_node(id, recorder.stream(), *params);
    if (code == CUDA_SUCCESS) *work = recorder.take();
    return code;
  });
}

CUresult add_graph_node(Call id, CUgraphNode* node, CUgraph handle, const CUgraphNode* after,
                        size_t count, const CUgraphNodeParams* params) {
  const auto graph = find_graph(handle);
  if (graph == nullptr || node == nullptr || (after == nullptr && count != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<GraphNode*> dependencies;
  for (size_t i = 0; i < count; ++i) {
    if (graph_of_node(after[i]) != graph) return CUDA_ERROR_INVALID_VALUE;
    dependencies.push_back(reinterpret_cast<GraphNode*>(after[i]));
  }
  Work work;
  const CUresult code = work_of(id, params, &work);
  if (code != CUDA_SUCCESS) return code;
  *node = reinterpret_cast<CUgraphNode>(graph->add(std::move(work), std::move(dependencies)));
  return CUDA_SUCCESS;
}

CUresult set_node(Call id, CUgraphNode handle, const CUgraphNodeParams* params) {
  if (graph_of_node(handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  const CUresult code = work_of(id, params, &work);
  if (code == CUDA_SUCCESS) reinterpret_cast<GraphNode*>(handle)->work = std::move(work);
  return code;
}

}  // namespace

extern "C" {

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  return call(
      Call::cuGraphCreate,
      [&] {
        if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        *phGraph = make_graph()->handle;
        return CUDA_SUCCESS;
      },
      out("phGraph", phGraph), in("flags", flags));
}

CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return call(Call::cuGraphAddNode, [&] {
    return add_graph_node(Call::cuGraphAddNode, phGraphNode, hGraph, dependencies, numDependencies,
                          nodeParams);
  });
}

// Edges that are not the plain kind need kernels that signal early: there are none.
CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return call(Call::cuGraphAddNode_v2, [&] {
    return add_graph_node(Call::cuGraphAddNode_v2, phGraphNode, hGraph, dependencies,
                          numDependencies, nodeParams);
  });
}

CUresult cuGraphAddNode_v3(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return call(Call::cuGraphAddNode_v3, [&] {
    return add_graph_node(Call::cuGraphAddNode_v3, phGraphNode, hGraph, dependencies,
                          numDependencies, nodeParams);
  });
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  return call(Call::cuGraphNodeSetParams,
              [&] { return set_node(Call::cuGraphNodeSetParams, hNode, nodeParams); });
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  return call(Call::cuGraphNodeSetParams_v2,
              [&] { return set_node(Call::cuGraphNodeSetParams_v2, hNode, nodeParams); });
}

}  // extern "C"
