// SPDX-License-Identifier: Apache-2.0
//
// Graphs as captures make them: recorded work with its order, instantiated by copying. A launch
// runs what the graph leaves unordered side by side: the first line of nodes on the launching
// stream, the others on streams of the executable graph's own.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/cuda.h"
#include "exec/stream.h"
#include "exec/work.h"

namespace simcuda {

struct GraphNode {
  Work work;
  std::vector<GraphNode*> dependencies;
};

struct Graph {
  CUgraph handle = nullptr;
  std::deque<GraphNode> nodes;  // stable addresses

  GraphNode* add(Work work, std::vector<GraphNode*> dependencies) {
    return &nodes.emplace_back(GraphNode{std::move(work), std::move(dependencies)});
  }
};

std::shared_ptr<Graph> make_graph();
std::shared_ptr<Graph> find_graph(CUgraph handle);
CUresult forget_graph(CUgraph handle);

CUresult instantiate(Call call, Context* context, const Graph& graph, CUgraphExec* exec);
// CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE when the graphs are not alike.
CUresult update_exec(CUgraphExec handle, const Graph& graph);
CUresult forget_exec(CUgraphExec handle);
CUresult launch_graph(Call call, CUgraphExec handle, const StreamRef& stream);

}  // namespace simcuda
