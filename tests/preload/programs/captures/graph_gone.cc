// SPDX-License-Identifier: Apache-2.0
// What a graph held back until it was destroyed is told as free only if it can be had.
// A block is freed while a graph is captured, which runs once and is destroyed. Work begins that
// ends only when the host says so, behind that or before the graph goes; then all that is told as
// free is asked for.
//
//   graph_gone behind|before

#include <atomic>
#include <cstring>
#include <thread>

#include "../driver_codes.h"
#include "../timed_code.h"

namespace {

constexpr size_t kPage = 2 * kMiB;

void wait_until(void* flag) {
  while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
}

CUgraphExec run_graph(CUdeviceptr used, CUdeviceptr freed, CUstream stream) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(cuMemsetD8Async(used, 1, 100, stream));
  MUST(cuMemFree(freed));
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiate(&exec, graph, 0));
  MUST(cuGraphDestroy(graph));
  MUST(cuGraphLaunch(exec, stream));
  return exec;
}

}  // namespace

int main(int argc, char** argv) {
  const bool before = argc > 1 && std::strcmp(argv[1], "before") == 0;
  use_device(0);
  CUstream stream = nullptr, other = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUdeviceptr used = 0;
  MUST(cuMemAlloc(&used, 1000));
  for (int round = 0; round < 5; ++round) {
    CUdeviceptr freed = 0, all = 0;
    MUST(cuMemAlloc(&freed, 10 * kMiB));
    MUST(cuMemsetD8Async(freed, 1, 100, stream));
    CUgraphExec exec = run_graph(used, freed, stream);
    std::atomic<bool> go{false};
    if (before) MUST(cuLaunchHostFunc(other, wait_until, &go));
    MUST(cuGraphExecDestroy(exec));
    if (!before) MUST(cuLaunchHostFunc(other, wait_until, &go));
    size_t told = 0, total = 0;
    MUST(cuMemGetInfo(&told, &total));
    const CUresult taken = cuMemAlloc(&all, told / kPage * kPage);
    std::printf("all that is free: %d\n", taken);
    go = true;
    if (taken == CUDA_SUCCESS) MUST(cuMemFree(all));
    MUST(cuCtxSynchronize());
  }
  MUST(cuMemFree(used));
  MUST(cuStreamDestroy(stream));
  MUST(cuStreamDestroy(other));
  return 0;
}
