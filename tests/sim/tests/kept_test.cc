// SPDX-License-Identifier: Apache-2.0
//
// Objects that graphs keep, what captured work depends on, and what graphs tell of themselves.
#include <atomic>
#include <thread>

#include "catch.h"
#include "device_code.h"

namespace {

// How often an object was destroyed, and by which thread.
struct Witness {
  std::atomic<int> destroyed{0};
  std::thread::id by{};
  CUresult of_a_call = CUDA_SUCCESS;

  static void CUDA_CB destroy(void* self) {
    auto& witness = *static_cast<Witness*>(self);
    witness.by = std::this_thread::get_id();
    witness.of_a_call = cuCtxSynchronize();
    ++witness.destroyed;
  }

  bool gone() const {
    while (destroyed == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return destroyed == 1;
  }

  bool still_there() const {
    // For a driver that destroys it; a slow one could only go unnoticed.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return destroyed == 0;
  }
};

CUuserObject object_of(Witness& witness, unsigned references = 1) {
  CUuserObject object = nullptr;
  EXPECT_OK(cuUserObjectCreate(&object, &witness, Witness::destroy, references,
                               CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  return object;
}

CUgraph captured(CUstream stream, CUdeviceptr block) {
  CUgraph graph = nullptr;
  EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(cuMemsetD8Async(block, 1, 64, stream));
  EXPECT_OK(cuMemsetD8Async(block, 2, 64, stream));
  EXPECT_OK(cuStreamEndCapture(stream, &graph));
  return graph;
}

}  // namespace

TEST_CASE("a user object is destroyed once, by a thread of the driver, with its last reference") {
  REQUIRE(in_child({}, [] {
    start();
    Witness witness;
    const CUuserObject object = object_of(witness, 2);
    EXPECT_OK(cuUserObjectRetain(object, 3));
    EXPECT_OK(cuUserObjectRelease(object, 4));
    EXPECT(witness.still_there());
    EXPECT_CODE(cuUserObjectRelease(object, 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuUserObjectRelease(object, 1));
    EXPECT(witness.gone());
    EXPECT(witness.by != std::this_thread::get_id());
    EXPECT(witness.of_a_call == CUDA_ERROR_NOT_PERMITTED);
    EXPECT_CODE(cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE);
  }));
}

TEST_CASE("a user object outlives the graph that was instantiated with it") {
  REQUIRE(in_child({}, [] {
    start();
    Witness witness;
    const CUstream stream = new_stream();
    const CUgraph graph = captured(stream, new_block(64));
    EXPECT_OK(cuGraphRetainUserObject(graph, object_of(witness), 1, CU_GRAPH_USER_OBJECT_MOVE));
    CUgraphExec exec = nullptr;
    EXPECT_OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT_OK(cuGraphDestroy(graph));
    EXPECT(witness.still_there());
    EXPECT_OK(cuGraphLaunch(exec, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuGraphExecDestroy(exec));
    EXPECT(witness.gone());
  }));
}

TEST_CASE("a graph gives back no more references than it has") {
  REQUIRE(in_child({}, [] {
    start();
    Witness witness;
    const CUgraph graph = captured(new_stream(), new_block(64));
    const CUuserObject object = object_of(witness);
    EXPECT_OK(cuGraphRetainUserObject(graph, object, 2, 0));
    EXPECT_CODE(cuGraphReleaseUserObject(graph, object, 3), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuGraphReleaseUserObject(graph, object, 2));
    EXPECT_CODE(cuGraphReleaseUserObject(graph, object, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT(witness.still_there());
    EXPECT_OK(cuUserObjectRelease(object, 1));
    EXPECT(witness.gone());
    CUuserObject none = nullptr;
    EXPECT_CODE(
        cuUserObjectCreate(&none, &witness, Witness::destroy, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
        CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuUserObjectCreate(&none, &witness, Witness::destroy, 1, 0),
                CUDA_ERROR_INVALID_VALUE);
  }));
}

TEST_CASE("a graph's nodes tell what they depend on") {
  REQUIRE(in_child({}, [] {
    start();
    const CUgraph graph = captured(new_stream(), new_block(64));
    CUgraphNode nodes[2] = {}, before[2] = {};
    size_t count = 2;
    EXPECT_OK(cuGraphGetNodes(graph, nodes, &count));
    EXPECT(count == 2);
    CUgraphEdgeData edges[2] = {{1, 1, 1, {}}, {1, 1, 1, {}}};
    EXPECT_OK(cuGraphNodeGetDependencies(nodes[1], before, edges, &count));
    EXPECT(count == 1);
    EXPECT(before[0] == nodes[0]);
    EXPECT(before[1] == nullptr);
    EXPECT(edges[0].type == 0);
    EXPECT_OK(cuGraphNodeGetDependencies(nodes[0], nullptr, nullptr, &count));
    EXPECT(count == 0);
    EXPECT_OK(cuGraphDestroy(graph));
    EXPECT_CODE(cuGraphNodeGetDependencies(nodes[0], nullptr, nullptr, &count),
                CUDA_ERROR_INVALID_VALUE);
  }));
}

TEST_CASE("what captured work depends on can be added to and set anew") {
  REQUIRE(in_child({}, [] {
    start();
    const CUdeviceptr block = new_block(64);
    const CUstream stream = new_stream();
    EXPECT_CODE(cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0,
                                                  CU_STREAM_SET_CAPTURE_DEPENDENCIES),
                CUDA_ERROR_ILLEGAL_STATE);
    const auto frontier = [&] {
      CUstreamCaptureStatus status{};
      const CUgraphNode* nodes = nullptr;
      size_t count = 0;
      EXPECT_OK(cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, nullptr, &count));
      return std::vector<CUgraphNode>(nodes, nodes + count);
    };
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_OK(cuMemsetD8Async(block, 1, 64, stream));
    CUgraphNode first = frontier().at(0);
    EXPECT_OK(cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0,
                                                CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    EXPECT(frontier().empty());
    EXPECT_OK(cuMemsetD8Async(block, 2, 64, stream));
    EXPECT_OK(cuStreamUpdateCaptureDependencies(stream, &first, nullptr, 1,
                                                CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    EXPECT(frontier().size() == 2);
    auto unknown = reinterpret_cast<CUgraphNode>(&first);
    EXPECT_CODE(cuStreamUpdateCaptureDependencies(stream, &unknown, nullptr, 1,
                                                  CU_STREAM_ADD_CAPTURE_DEPENDENCIES),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemsetD8Async(block, 3, 64, stream));
    CUgraph graph = nullptr;
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
    CUgraphNode nodes[3] = {};
    size_t count = 3;
    EXPECT_OK(cuGraphGetNodes(graph, nodes, &count));
    EXPECT_OK(cuGraphNodeGetDependencies(nodes[1], nullptr, nullptr, &count));
    EXPECT(count == 0);
    EXPECT_OK(cuGraphNodeGetDependencies(nodes[2], nullptr, nullptr, &count));
    EXPECT(count == 2);
  }));
}

TEST_CASE("graphs have no memory of their own") {
  REQUIRE(in_child({}, [] {
    start();
    cuuint64_t bytes = 1;
    EXPECT_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &bytes));
    EXPECT(bytes == 0);
    EXPECT_OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &bytes));
    EXPECT_CODE(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuDeviceGetGraphMemAttribute(7, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &bytes),
                CUDA_ERROR_INVALID_DEVICE);
    EXPECT_OK(cuDeviceGraphMemTrim(0));
  }));
}
