// SPDX-License-Identifier: Apache-2.0
// What a living graph may hold is not handed out again, unless memory is out.
// Blocks that a graph may hold are freed while it lives. The program never launches such a graph
// again, so it is correct; with REUSE=held in the environment it also says whether an address came
// back that a living graph may still hold, and whether it comes back once no graph does.

#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "../driver_codes.h"

namespace {

constexpr size_t kSmall = 3000, kLarge = 4 * kMiB;

bool g_watch = false;
CUstream g_stream;

// What a pool does with a freed block shows in the addresses of the next ones.
void say_whether_back(const char* when, CUdeviceptr freed, size_t bytes, bool expected) {
  std::vector<CUdeviceptr> blocks;
  bool back = false;
  SAY(cuCtxSynchronize());
  for (int i = 0; i < 8; ++i) {
    CUdeviceptr block = 0;
    cuMemAlloc(&block, bytes);
    back |= block == freed;
    blocks.push_back(block);
  }
  for (const CUdeviceptr block : blocks) cuMemFree(block);
  SAY(cuCtxSynchronize());
  std::printf("%s: %s\n", when, !g_watch || back == expected ? "as expected" : "NOT as expected");
}

CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr block = 0;
  SAY(cuMemAlloc(&block, bytes));
  return block;
}

// Captures a fill of `block`; `meanwhile` runs inside.
template <typename Meanwhile>
CUgraph capture(CUdeviceptr block, Meanwhile meanwhile) {
  CUgraph graph = nullptr;
  SAY(cuStreamBeginCapture(g_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuMemsetD8Async(block, 1, 100, g_stream));
  meanwhile();
  SAY(cuStreamEndCapture(g_stream, &graph));
  return graph;
}

CUgraph capture(CUdeviceptr block) {
  return capture(block, [] {});
}

CUgraphExec instantiate(CUgraph graph) {
  CUgraphExec exec = nullptr;
  SAY(cuGraphInstantiate(&exec, graph, 0));
  return exec;
}

void freed_after_the_capture(size_t bytes) {
  const CUdeviceptr block = allocate(bytes);
  CUgraph graph = capture(block);
  SAY(cuMemFree(block));
  say_whether_back("captured", block, bytes, false);
  CUgraphExec exec = instantiate(graph);
  SAY(cuGraphDestroy(graph));
  say_whether_back("instantiated", block, bytes, false);
  SAY(cuGraphExecDestroy(exec));
  say_whether_back("destroyed", block, bytes, true);
}

void freed_inside_the_capture(size_t bytes, bool by_another_thread) {
  const CUdeviceptr block = allocate(bytes), held = allocate(bytes);
  CUcontext context;
  SAY(cuCtxGetCurrent(&context));
  const auto free_it = [&] {
    SAY(cuCtxSetCurrent(context));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    SAY(cuThreadExchangeStreamCaptureMode(&mode));
    SAY(cuMemFree(block));
    SAY(cuThreadExchangeStreamCaptureMode(&mode));
  };
  CUgraph graph = capture(held, [&] {
    if (by_another_thread) {
      std::thread(free_it).join();
    } else {
      free_it();
    }
  });
  CUgraphExec exec = instantiate(graph);
  SAY(cuGraphDestroy(graph));
  say_whether_back("freed inside", block, bytes, false);
  SAY(cuGraphExecDestroy(exec));
  say_whether_back("destroyed", block, bytes, true);
  SAY(cuMemFree(held));
}

void never_instantiated(size_t bytes) {
  const CUdeviceptr block = allocate(bytes);
  CUgraph graph = capture(block);
  SAY(cuMemFree(block));
  SAY(cuGraphDestroy(graph));
  say_whether_back("graph gone", block, bytes, true);
}

// What a graph cannot hold is not kept back by it.
void born_later(size_t bytes) {
  const CUdeviceptr first = allocate(bytes);
  CUgraph graph = capture(first);
  CUgraphExec exec = instantiate(graph);
  const CUdeviceptr later = allocate(bytes);
  SAY(cuMemFree(later));
  say_whether_back("born later", later, bytes, true);
  SAY(cuGraphExecDestroy(exec));
  SAY(cuGraphDestroy(graph));
  SAY(cuMemFree(first));
}

void updated(size_t bytes) {
  const CUdeviceptr first = allocate(bytes);
  CUgraph graph = capture(first);
  CUgraphExec exec = instantiate(graph);
  const CUdeviceptr second = allocate(bytes);
  CUgraph other = capture(second);
  CUgraphExecUpdateResultInfo info;
  SAY(cuGraphExecUpdate(exec, other, &info));
  SAY(cuGraphDestroy(other));
  SAY(cuGraphLaunch(exec, g_stream));
  SAY(cuStreamSynchronize(g_stream));
  SAY(cuMemFree(second));
  say_whether_back("updated", second, bytes, false);
  SAY(cuGraphExecDestroy(exec));
  say_whether_back("destroyed", second, bytes, true);
  SAY(cuGraphDestroy(graph));
  SAY(cuMemFree(first));
}

// The last launch may still be running when its graph is destroyed.
void destroyed_while_running() {
  const CUdeviceptr block = allocate(kSmall);
  CUgraph graph = capture(block);
  CUgraphExec exec = instantiate(graph);
  SAY(cuGraphLaunch(exec, g_stream));
  SAY(cuMemFree(block));
  SAY(cuGraphExecDestroy(exec));
  SAY(cuGraphDestroy(graph));
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(allocate(kSmall));
    SAY(cuMemsetD8Async(blocks.back(), 2, kSmall, nullptr));
  }
  SAY(cuCtxSynchronize());
  for (const CUdeviceptr other : blocks) SAY(cuMemFree(other));
}

// Memory that a graph keeps back is there when the device has no other.
void short_of_memory() {
  std::vector<CUdeviceptr> blocks;
  size_t free_bytes = 0, total = 0, after = 0;
  const CUdeviceptr held = allocate(kSmall);
  SAY(cuMemGetInfo(&free_bytes, &total));
  for (int i = 0; i < 20; ++i) blocks.push_back(allocate(kLarge));
  CUgraph graph = capture(held);
  CUgraphExec exec = instantiate(graph);
  SAY(cuGraphDestroy(graph));
  for (const CUdeviceptr block : blocks) SAY(cuMemFree(block));
  SAY(cuMemGetInfo(&after, &total));
  std::printf("as much free as before: %d\n", after == free_bytes);
  const CUdeviceptr all = allocate(after / kMiB * kMiB - 2 * kMiB);
  SAY(cuMemFree(all));
  SAY(cuGraphExecDestroy(exec));
  SAY(cuMemFree(held));
}

}  // namespace

int main() {
  const char* reuse = std::getenv("REUSE");
  g_watch = reuse != nullptr && std::strcmp(reuse, "held") == 0;
  use_device(0);
  SAY(cuStreamCreate(&g_stream, CU_STREAM_NON_BLOCKING));
  for (const size_t bytes : {kSmall, kLarge}) {
    freed_after_the_capture(bytes);
    freed_inside_the_capture(bytes, false);
    freed_inside_the_capture(bytes, true);
    never_instantiated(bytes);
    born_later(bytes);
    updated(bytes);
  }
  destroyed_while_running();
  short_of_memory();
  // A device reset takes everything with it, graphs included.
  const CUdeviceptr block = allocate(kSmall);
  instantiate(capture(block));
  SAY(cuDevicePrimaryCtxReset(0));
  use_device(0);
  allocate_and_free(100, kSmall);
  return 0;
}
