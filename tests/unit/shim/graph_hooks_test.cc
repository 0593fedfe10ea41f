// SPDX-License-Identifier: Apache-2.0
// What the hooks of graph functions tell of graphs that are changed, by the driver's answer.
#include <functional>
#include <vector>

#include "shim/entry/driver.h"
#include "shim/order/captures/graphs.h"
#include "tests/catch.h"
#include "tests/unit/shim/graph_blocks.h"

namespace cistern::test {
namespace {

CUresult answer = CUDA_SUCCESS;
std::vector<const void*> untied;  // graphs whose contexts are no longer known

template <typename... Arguments>
CUresult answers(Arguments...) {
  return answer;
}

}  // namespace
}  // namespace cistern::test

namespace cistern::shim {

void exec_has_contexts_of(CUgraphExec, CUgraph) {}
void exec_contexts_changed(CUgraphExec exec) { test::untied.push_back(exec); }
void graph_contexts_changed() {}
void graph_contexts_gone(const void*) {}

}  // namespace cistern::shim

namespace cistern::test {
namespace {

using namespace shim;          // NOLINT(google-build-using-namespace)
using namespace graph_blocks;  // NOLINT(google-build-using-namespace)

CUgraphNodeParams with_child(CUgraph child) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = child;
  return params;
}

// Each changes a node of the executable graph; the last two put graph(2) into it.
struct Edits {
  Edits() {
    Driver& driver = fakes().driver;
    driver.cuGraphExecKernelNodeSetParams = answers;
    driver.cuGraphExecKernelNodeSetParams_v2 = answers;
    driver.cuGraphExecMemcpyNodeSetParams = answers;
    driver.cuGraphExecMemsetNodeSetParams = answers;
    driver.cuGraphExecBatchMemOpNodeSetParams = answers;
    driver.cuGraphExecChildGraphNodeSetParams = answers;
    driver.cuGraphExecNodeSetParams = answers;
    answer = CUDA_SUCCESS;
    untied.clear();
  }
  CUgraphNodeParams child = with_child(graph(2)), none = {};
  const std::vector<std::function<CUresult(CUgraphExec)>> all{
      [](CUgraphExec e) { return cuGraphExecKernelNodeSetParams(e, nullptr, nullptr); },
      [](CUgraphExec e) { return cuGraphExecKernelNodeSetParams_v2(e, nullptr, nullptr); },
      [](CUgraphExec e) { return cuGraphExecMemcpyNodeSetParams(e, nullptr, nullptr, nullptr); },
      [](CUgraphExec e) { return cuGraphExecMemsetNodeSetParams(e, nullptr, nullptr, nullptr); },
      [](CUgraphExec e) { return cuGraphExecBatchMemOpNodeSetParams(e, nullptr, nullptr); },
      [this](CUgraphExec e) { return cuGraphExecNodeSetParams(e, nullptr, &none); },
      [](CUgraphExec e) { return cuGraphExecNodeSetParams(e, nullptr, nullptr); },
      [](CUgraphExec e) { return cuGraphExecChildGraphNodeSetParams(e, nullptr, graph(2)); },
      [this](CUgraphExec e) { return cuGraphExecNodeSetParams(e, nullptr, &child); }};
};

TEST_CASE("an executable graph that was edited may hold what is alive by then, and be anyone's") {
  const Graphs none;
  const Edits edits;
  for (const auto& edit : edits.all) {
    create(graph(1));
    graph_instantiated(exec(1), graph(1));
    const Block late;
    CHECK_FALSE(late.held());
    CHECK(edit(exec(1)) == CUDA_SUCCESS);
    CHECK(late.held());
    CHECK(untied == std::vector<const void*>{exec(1)});
    untied.clear();
    GraphLeaving(exec(1)).destroyed();
  }
}

TEST_CASE("a child that is put into an executable graph brings what it may hold") {
  const Graphs none;
  const Edits edits;
  for (size_t i = 0; i < edits.all.size(); ++i) {
    create(graph(2));
    const Freed between;
    create(graph(1));
    graph_instantiated(exec(1), graph(1));
    CHECK(edits.all[i](exec(1)) == CUDA_SUCCESS);
    CHECK(between.held() == (i >= edits.all.size() - 2));
    GraphLeaving(exec(1)).destroyed();
  }
}

TEST_CASE("an edit that the driver refuses changes nothing, nor one without pools") {
  const Graphs none;
  const Edits edits;
  create(graph(1));
  graph_instantiated(exec(1), graph(1));
  const Block late;
  const bool refused = GENERATE(true, false);
  if (refused) answer = CUDA_ERROR_INVALID_VALUE;
  fakes().active = refused;
  for (const auto& edit : edits.all) {
    CHECK(edit(exec(1)) == answer);
    CHECK_FALSE(late.held());
  }
  CHECK(untied.empty());
}

}  // namespace
}  // namespace cistern::test
