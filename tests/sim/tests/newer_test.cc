// SPDX-License-Identifier: Apache-2.0
// What came after CUDA 13.0, and graphs that are built node by node.
#include <cstdint>
#include <cstring>

#include "support.h"
#include "tests/catch.h"

namespace {

constexpr size_t kWords = 100;
constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

CUdeviceptr words(unsigned value) {
  CUdeviceptr address = 0;
  EXPECT_OK(cuMemAlloc(&address, kWords * sizeof(uint32_t)));
  EXPECT_OK(cuMemsetD32(address, value, kWords));
  EXPECT_OK(cuCtxSynchronize());  // the streams here do not wait for the legacy one
  return address;
}

CUgraphNodeParams fill_node(CUdeviceptr address, unsigned value) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  params.memset = {address, 0, value, sizeof(uint32_t), kWords, 1, nullptr};
  return params;
}

CUgraphNodeParams copy_node(CUdeviceptr to, CUdeviceptr from) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  CUDA_MEMCPY3D& copy = params.memcpy.copyParams;
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstDevice = to;
  copy.WidthInBytes = kWords * sizeof(uint32_t);
  copy.Height = copy.Depth = 1;
  return params;
}

void run_once(CUgraph graph, CUstream stream) {
  CUgraphExec exec = nullptr;
  EXPECT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT_OK(cuGraphLaunch(exec, stream));
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_OK(cuGraphExecDestroy(exec));
}

CUgraph captured(CUstream stream, CUdeviceptr filled) {
  CUgraph graph = nullptr;
  EXPECT_OK(cuStreamBeginCapture(stream, kRelaxed));
  EXPECT_OK(cuMemsetD32Async(filled, 1, kWords, stream));
  EXPECT_OK(cuStreamEndCapture(stream, &graph));
  return graph;
}

CUresult count(void* changes, CUgraphNode, const CUgraphNodeParams*, const CUgraphNodeParams*,
               CUgraphRecaptureStatus) {
  ++*static_cast<int*>(changes);
  return CUDA_SUCCESS;
}

CUresult refuse(void*, CUgraphNode, const CUgraphNodeParams*, const CUgraphNodeParams*,
                CUgraphRecaptureStatus) {
  return CUDA_ERROR_INVALID_VALUE;
}

CUstreamBatchMemOpParams reduction(CUdeviceptr address, unsigned operation, uint64_t value) {
  const CisternAtomicReduction given{
      CISTERN_ATOMIC_REDUCTION, 0, operation, 2 | 4 | 8, address, value, 0};
  CUstreamBatchMemOpParams params{};
  std::memcpy(&params, &given, sizeof given);
  return params;
}

}  // namespace

TEST_CASE("nodes added to a graph run in their order, as they were last set") {
  REQUIRE(in_child({}, [] {
    start();
    const CUstream stream = new_stream();
    const CUdeviceptr from = words(0), to = words(0);
    CUgraph graph = nullptr;
    CUgraphNode first = nullptr, second = nullptr;
    EXPECT_OK(cuGraphCreate(&graph, 0));
    CUgraphNodeParams fill = fill_node(from, 6), copy = copy_node(to, from);
    EXPECT_OK(cuGraphAddNode_v3(&first, graph, nullptr, nullptr, 0, &fill));
    EXPECT_OK(cuGraphAddNode_v2(&second, graph, &first, nullptr, 1, &copy));
    run_once(graph, stream);
    EXPECT(word_at(to) == 6);
    fill = fill_node(from, 7);
    EXPECT_OK(cuGraphNodeSetParams_v2(first, &fill));
    run_once(graph, stream);
    EXPECT(word_at(to) == 7);
    EXPECT_OK(cuGraphDestroy(graph));
  }));
}

TEST_CASE("a graph that is captured anew does what was captured last") {
  REQUIRE(in_child({}, [] {
    start();
    const CUstream stream = new_stream();
    const CUdeviceptr before = words(0), after = words(0);
    CUgraph graph = captured(stream, before), same = nullptr;
    int changes = 0;
    EXPECT_OK(cuStreamBeginRecaptureToGraph(stream, kRelaxed, graph, count, &changes));
    EXPECT_OK(cuMemsetD32Async(after, 2, kWords, stream));
    EXPECT_OK(cuStreamEndCapture(stream, &same));
    EXPECT(same == graph);
    EXPECT(changes == 1);
    run_once(graph, stream);
    EXPECT(word_at(before) == 0);
    EXPECT(word_at(after) == 2);
  }));
}

TEST_CASE("a second capture of other work, or that the program refuses, fails") {
  REQUIRE(in_child({}, [] {
    start();
    const CUstream stream = new_stream();
    const CUdeviceptr one = words(0), other = words(0);
    CUgraph graph = captured(stream, one), none = nullptr;
    EXPECT_OK(cuStreamBeginRecaptureToGraph(stream, kRelaxed, graph, nullptr, nullptr));
    EXPECT_CODE(cuStreamEndCapture(stream, &none), CUDA_ERROR_GRAPH_RECAPTURE_FAILURE);
    EXPECT(none == nullptr);
    EXPECT_OK(cuStreamBeginRecaptureToGraph(stream, kRelaxed, graph, refuse, nullptr));
    EXPECT_OK(cuMemsetD32Async(other, 2, kWords, stream));
    EXPECT_CODE(cuStreamEndCapture(stream, &none), CUDA_ERROR_GRAPH_RECAPTURE_FAILURE);
    EXPECT_OK(cuGraphDestroy(graph));
  }));
}

TEST_CASE("a capture into a graph comes after the nodes that it names") {
  REQUIRE(in_child({}, [] {
    start();
    const CUstream stream = new_stream();
    const CUdeviceptr from = words(0), to = words(0);
    CUgraph graph = captured(stream, from), same = nullptr;
    CUgraphNode node = nullptr;
    size_t room = 1;
    EXPECT_OK(cuGraphGetNodes(graph, &node, &room));
    EXPECT_OK(cuStreamBeginCaptureToGraph(stream, graph, &node, nullptr, 1, kRelaxed));
    EXPECT_OK(cuMemcpyDtoDAsync(to, from, kWords * sizeof(uint32_t), stream));
    EXPECT_OK(cuStreamEndCapture(stream, &same));
    EXPECT(same == graph);
    run_once(graph, stream);
    EXPECT(word_at(to) == 1);
  }));
}

TEST_CASE("what is captured for a graphics interface does not run, and makes no graph") {
  REQUIRE(in_child({}, [] {
    start();
    const CUstream stream = new_stream();
    const CUdeviceptr filled = words(0);
    CUgraph graph = nullptr;
    void* list = nullptr;
    EXPECT_OK(
        cuStreamBeginCaptureToCig(stream, reinterpret_cast<CUstreamCigCaptureParams*>(&list)));
    EXPECT_OK(cuMemsetD32Async(filled, 2, kWords, stream));
    EXPECT_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT_OK(cuStreamEndCaptureToCig(stream));
    EXPECT_CODE(cuStreamEndCaptureToCig(stream), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT(word_at(filled) == 0);
  }));
}

TEST_CASE("memory operations write, add, and, or") {
  REQUIRE(in_child({}, [] {
    start();
    const CUstream stream = new_stream();
    const CUdeviceptr word = words(0);
    CUstreamBatchMemOpParams write{};
    write.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, word, {12}, 0, 0};
    CUstreamBatchMemOpParams all[] = {write, reduction(word, 0, 3), reduction(word, 5, 13),
                                      reduction(word, 6, 2)};
    EXPECT_OK(cuStreamBatchMemOp(stream, 4, all, 0));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT(word_at(word) == (((12 + 3) & 13) | 2));
    CUstreamBatchMemOpParams unknown = reduction(word, 1, 1);
    EXPECT_CODE(cuStreamBatchMemOp(stream, 1, &unknown, 0), CUDA_ERROR_INVALID_VALUE);
  }));
}
