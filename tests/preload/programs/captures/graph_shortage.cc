// SPDX-License-Identifier: Apache-2.0
// What living graphs keep back is there for the program when memory is short.
// A loop updates a graph with each step and frees all blocks of the step but one; a hundred MiB of
// those are live. Then half of the device is asked for at once, while another graph may hold most
// of what was freed last.

#include <cstdlib>
#include <deque>
#include <vector>

#include "../driver_codes.h"

namespace {

CUstream g_stream;
int g_failures = 0;

void need(CUresult code) { g_failures += code != CUDA_SUCCESS ? 1 : 0; }

CUgraph capture(CUdeviceptr block) {
  CUgraph graph = nullptr;
  need(cuStreamBeginCapture(g_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  need(cuMemsetD8Async(block, 1, 100, g_stream));
  need(cuStreamEndCapture(g_stream, &graph));
  return graph;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200000;
  const size_t most_live = 100 * kMiB / bytes;
  use_device(0);
  need(cuStreamCreate(&g_stream, CU_STREAM_NON_BLOCKING));
  std::deque<CUdeviceptr> live(1);
  need(cuMemAlloc(&live.front(), bytes));
  CUgraph graph = capture(live.front());
  CUgraphExec exec = nullptr, other = nullptr;
  need(cuGraphInstantiate(&exec, graph, 0));
  need(cuGraphDestroy(graph));
  CUdeviceptr blocks[8];
  for (size_t step = 0; step < 4 * most_live; ++step) {
    for (CUdeviceptr& block : blocks) need(cuMemAlloc(&block, bytes));
    graph = capture(blocks[step % 8]);
    CUgraphExecUpdateResultInfo info;
    need(cuGraphExecUpdate(exec, graph, &info));
    need(cuGraphLaunch(exec, g_stream));
    need(cuGraphDestroy(graph));
    for (size_t i = 1; i < 8; ++i) need(cuMemFree(blocks[i]));
    live.push_back(blocks[0]);
    if (live.size() <= most_live) continue;
    need(cuMemFree(live.front()));
    live.pop_front();
  }
  // Most of it is held by a graph that lives on.
  std::vector<CUdeviceptr> held(300 * kMiB / bytes);
  for (CUdeviceptr& block : held) need(cuMemAlloc(&block, bytes));
  graph = capture(held.front());
  need(cuGraphInstantiate(&other, graph, 0));
  for (const CUdeviceptr block : held) need(cuMemFree(block));
  CUdeviceptr half = 0;
  std::printf("512 MiB: %d\n", cuMemAlloc(&half, 512 * kMiB));
  need(cuMemFree(half));
  need(cuGraphExecDestroy(exec));
  need(cuGraphExecDestroy(other));
  need(cuGraphDestroy(graph));
  for (const CUdeviceptr block : live) need(cuMemFree(block));
  std::printf("failures %d\n", g_failures);
  return 0;
}
