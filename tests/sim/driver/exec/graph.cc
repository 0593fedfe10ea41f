// SPDX-License-Identifier: Apache-2.0
#include "exec/graph.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "base/handles.h"
#include "exec/capture.h"
#include "exec/context.h"
#include "exec/engine.h"

namespace simcuda {
namespace {

HandleTable<CUgraph, Graph>& graphs() {
  static auto& all = *new HandleTable<CUgraph, Graph>;
  return all;
}

struct ExecNode {
  Work work;
  std::vector<size_t> after;  // nodes
  size_t branch;              // 0: the launching stream
};

// An executable copy of a graph. Launches of one follow each other.
struct Exec {
  std::mutex mutex;  // guards what follows
  std::vector<ExecNode> nodes{};
  std::vector<StreamRef> branches{};  // branch i runs on the i-th less one
  MarkerRef last{};                   // after the latest launch
  TakenRef taken{};                   // by the instantiation
  uint64_t uploaded_to = 0;           // id of the context that it was last launched in
  TakenRef uploaded{};                // by the first launch there
  KeptObjects kept{};
};

HandleTable<CUgraphExec, Exec>& execs() {
  static auto& all = *new HandleTable<CUgraphExec, Exec>;
  return all;
}

// A node carries on the line of one it depends on, unless another already does.
size_t branch_of(const ExecNode& node, const std::vector<ExecNode>& before,
                 std::vector<size_t>& last_of_branch) {
  for (size_t index : node.after) {
    const size_t branch = before[index].branch;
    if (last_of_branch[branch] != index) continue;
    last_of_branch[branch] = before.size();
    return branch;
  }
  last_of_branch.push_back(before.size());
  return last_of_branch.size() - 1;
}

std::vector<ExecNode> copy_nodes(const Graph& graph) {
  std::vector<ExecNode> copies;
  std::unordered_map<const GraphNode*, size_t> index_of;
  std::vector<size_t> last_of_branch;
  for (const GraphNode& node : graph.nodes) {
    index_of[&node] = copies.size();
    ExecNode copy{node.work, {}, 0};
    for (const GraphNode* before : node.dependencies) copy.after.push_back(index_of.at(before));
    copy.branch = branch_of(copy, copies, last_of_branch);
    copies.push_back(std::move(copy));
  }
  return copies;
}

// Caller holds the exec's mutex.
const StreamRef& stream_of(Exec& exec, size_t branch, const StreamRef& launching) {
  if (branch == 0) return launching;
  while (exec.branches.size() < branch) exec.branches.push_back(nullptr);
  StreamRef& own = exec.branches[branch - 1];
  if (own == nullptr || &own->context != &launching->context) {
    own = std::make_shared<Stream>(launching->context, Stream::Role::kCreated,
                                   CU_STREAM_NON_BLOCKING, 0);
  }
  return own;
}

// A graph launched inside a capture becomes part of what is captured.
CUresult record_nodes(Exec& exec, const StreamRef& stream) {
  const std::lock_guard lock(exec.mutex);
  CUresult code = CUDA_SUCCESS;
  for (size_t i = 0; i < exec.nodes.size() && code == CUDA_SUCCESS; ++i) {
    code = submit(stream, exec.nodes[i].work);
  }
  return code;
}

// The first launch in a context brings the graph to the device. Caller holds the exec's mutex.
CUresult upload(Call call, Exec& exec, Context& context) {
  if (exec.uploaded_to == context.id()) return CUDA_SUCCESS;
  const CUresult code = take_for(call, context, &exec.uploaded);
  if (code == CUDA_SUCCESS) exec.uploaded_to = context.id();
  return code;
}

}  // namespace

std::shared_ptr<Graph> make_graph() {
  auto graph = std::make_shared<Graph>();
  graph->handle = graphs().insert(graph);
  return graph;
}

std::shared_ptr<Graph> graph_of_node(CUgraphNode handle) {
  std::shared_ptr<Graph> owner;
  graphs().for_each([&](const std::shared_ptr<Graph>& graph) {
    for (const GraphNode& node : graph->nodes) {
      if (reinterpret_cast<CUgraphNode>(const_cast<GraphNode*>(&node)) == handle) owner = graph;
    }
  });
  return owner;
}

std::shared_ptr<Graph> find_graph(CUgraph handle) { return graphs().find(handle); }

CUresult forget_graph(CUgraph handle) {
  return graphs().remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult instantiate(Call call, Context* context, const Graph& graph, CUgraphExec* handle) {
  auto exec = std::make_shared<Exec>();
  const CUresult code = context == nullptr ? CUDA_SUCCESS : take_for(call, *context, &exec->taken);
  if (code != CUDA_SUCCESS) return code;
  exec->nodes = copy_nodes(graph);
  exec->kept.take_from(graph.kept);
  *handle = execs().insert(std::move(exec));
  return CUDA_SUCCESS;
}

CUresult update_exec(CUgraphExec handle, const Graph& graph) {
  const auto exec = execs().find(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<ExecNode> nodes = copy_nodes(graph);
  const auto alike = [](const ExecNode& a, const ExecNode& b) {
    return a.after == b.after && a.work.call == b.work.call;
  };
  const std::lock_guard lock(exec->mutex);
  if (!std::equal(nodes.begin(), nodes.end(), exec->nodes.begin(), exec->nodes.end(), alike)) {
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  exec->nodes = std::move(nodes);
  return CUDA_SUCCESS;
}

CUresult forget_exec(CUgraphExec handle) {
  return execs().remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult launch_graph(Call call, CUgraphExec handle, const StreamRef& stream) {
  const auto exec = execs().find(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (being_captured(stream)) return record_nodes(*exec, stream);
  const std::lock_guard lock(exec->mutex);
  if (const CUresult code = upload(call, *exec, stream->context); code != CUDA_SUCCESS) return code;
  // The launch itself is ordered first, so that it takes its own latency.
  Work launch{.call = call, .run = [] {}};
  launch.after.add(exec->last);
  MarkerRef launched;
  if (const CUresult code = submit(stream, std::move(launch), Wait::kNo, &launched);
      code != CUDA_SUCCESS) {
    return code;
  }
  std::vector<MarkerRef> done(exec->nodes.size());
  Work end{.call = call};
  for (size_t i = 0; i < exec->nodes.size(); ++i) {
    const ExecNode& node = exec->nodes[i];
    Work work = node.work;
    work.after.add(launched);
    for (size_t before : node.after) work.after.add(done[before]);
    submit(stream_of(*exec, node.branch, stream), std::move(work), Wait::kNo, &done[i]);
    end.after.add(done[i]);
  }
  const CUresult code = submit(stream, std::move(end), Wait::kNo, &exec->last);
  const std::lock_guard order(exec_mutex());
  stream->before_kernel.reset();  // nothing overlaps a whole graph
  return code;
}

}  // namespace simcuda
