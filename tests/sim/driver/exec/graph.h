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
#include "exec/user_object.h"
#include "exec/work.h"

namespace simcuda {

struct GraphNode {
  Work work;
  std::vector<GraphNode*> dependencies;
};

struct Graph {
  CUgraph handle = nullptr;
  std::deque<GraphNode> nodes;  // stable addresses
  KeptObjects kept;

  GraphNode* add(Work work, std::vector<GraphNode*> dependencies) {
    return &nodes.emplace_back(GraphNode{std::move(work), std::move(dependencies)});
  }
};

// The graph that a node is part of; null for a handle that is no node of a graph that lives.
std::shared_ptr<Graph> graph_of_node(CUgraphNode node);

std::shared_ptr<Graph> make_graph();
std::shared_ptr<Graph> find_graph(CUgraph handle);
CUresult forget_graph(CUgraph handle);

CUresult instantiate(Call call, Context* context, const Graph& graph, CUgraphExec* exec);
// CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE when the graphs are not alike.
CUresult update_exec(CUgraphExec handle, const Graph& graph);
CUresult forget_exec(CUgraphExec handle);
CUresult launch_graph(Call call, CUgraphExec handle, const StreamRef& stream);

}  // namespace simcuda
