// SPDX-License-Identifier: Apache-2.0
#include "exec/graph.h"

#include "base/handles.h"

namespace simcuda {
namespace {

HandleTable<CUgraph, Graph>& graphs() {
  static auto& all = *new HandleTable<CUgraph, Graph>;
  return all;
}

HandleTable<CUgraphExec, const GraphWork>& execs() {
  static auto& all = *new HandleTable<CUgraphExec, const GraphWork>;
  return all;
}

}  // namespace

std::shared_ptr<Graph> make_graph() {
  auto graph = std::make_shared<Graph>();
  graph->handle = graphs().insert(graph);
  return graph;
}

std::shared_ptr<Graph> find_graph(CUgraph handle) { return graphs().find(handle); }

CUresult forget_graph(CUgraph handle) {
  return graphs().remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUgraphExec instantiate(const Graph& graph) {
  auto work = std::make_shared<GraphWork>();
  for (const GraphNode& node : graph.nodes) work->push_back(node.work);
  return execs().insert(std::move(work));
}

CUresult forget_exec(CUgraphExec handle) {
  return execs().remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult launch_graph(Call call, CUgraphExec handle, const StreamRef& stream) {
  const auto nodes = execs().find(handle);
  if (nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The launch itself is ordered first, so that it takes its own latency.
  CUresult code = submit(stream, {.call = call, .run = [] {}});
  for (size_t i = 0; i < nodes->size() && code == CUDA_SUCCESS; ++i) {
    code = submit(stream, (*nodes)[i]);
  }
  return code;
}

}  // namespace simcuda
