// SPDX-License-Identifier: Apache-2.0
// A program that updates its graphs with each step runs in flat memory.
// Each step allocates a few blocks, captures work on them, updates an executable graph with the
// capture (or makes a new one instead of the oldest), launches it and frees the blocks. What the
// graph wrote is looked at, so that no block may be somebody else's before its launch is done.
//
//   graph_updates one|lru|beside|kept [steps [--time]]
//
// --time: what the first and the last steps took, for tests/bench: they take the same.

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <vector>

#include "../driver_codes.h"

namespace {

constexpr size_t kBytes[] = {3000, 64 << 10, 140 << 10};

int g_failures = 0;
CUstream g_stream;

void need(CUresult code) { g_failures += code != CUDA_SUCCESS ? 1 : 0; }

// Of the processor: other programs do not count.
double seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Step {
  std::vector<CUdeviceptr> blocks;
  CUgraph graph = nullptr;
  unsigned char value = 0;
};

Step capture(unsigned char value) {
  Step step;
  step.value = value;
  for (const size_t bytes : kBytes) {
    step.blocks.push_back(0);
    need(cuMemAlloc(&step.blocks.back(), bytes));
  }
  need(cuStreamBeginCapture(g_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (const CUdeviceptr block : step.blocks) need(cuMemsetD8Async(block, value, 3000, g_stream));
  need(cuStreamEndCapture(g_stream, &step.graph));
  return step;
}

void launch_and_free(CUgraphExec exec, const Step& step) {
  unsigned char first = 0, last = 0;
  need(cuGraphLaunch(exec, g_stream));
  need(cuStreamSynchronize(g_stream));
  need(cuMemcpyDtoH(&first, step.blocks.front(), 1));
  need(cuMemcpyDtoH(&last, step.blocks.back() + 2999, 1));
  g_failures += first != step.value || last != step.value ? 1 : 0;
  for (const CUdeviceptr block : step.blocks) need(cuMemFree(block));
}

CUgraphExec instantiate(CUgraph graph) {
  CUgraphExec exec = nullptr;
  need(cuGraphInstantiate(&exec, graph, 0));
  return exec;
}

void update(CUgraphExec exec, CUgraph graph) {
  CUgraphExecUpdateResultInfo info;
  need(cuGraphExecUpdate(exec, graph, &info));
}

class Program {
 public:
  explicit Program(const char* kind)
      : lru_(std::strcmp(kind, "lru") == 0), kept_(std::strcmp(kind, "kept") == 0) {
    Step first = capture(1);
    if (std::strcmp(kind, "beside") == 0) {
      for (int i = 0; i < 200; ++i) {
        held_.push_back(0);
        need(cuMemAlloc(&held_.back(), 20000));
      }
      long_lived_ = instantiate(first.graph);
      for (const CUdeviceptr block : held_) need(cuMemFree(block));
    }
    execs_.push_back(instantiate(first.graph));
    launch_and_free(execs_.back(), first);
    need(cuGraphDestroy(first.graph));
  }

  void step(unsigned char value) {
    const Step step = capture(value);
    if (!lru_) {
      update(execs_.back(), step.graph);
    } else {
      execs_.push_back(instantiate(step.graph));
      if (execs_.size() > 8) {
        need(cuGraphExecDestroy(execs_.front()));
        execs_.pop_front();
      }
    }
    launch_and_free(execs_.back(), step);
    if (kept_) graphs_.push_back(step.graph);
    if (!kept_ || graphs_.size() > 4) {
      need(cuGraphDestroy(kept_ ? graphs_.front() : step.graph));
      if (kept_) graphs_.pop_front();
    }
  }

  void end() {
    for (CUgraphExec exec : execs_) need(cuGraphExecDestroy(exec));
    for (CUgraph graph : graphs_) need(cuGraphDestroy(graph));
    if (long_lived_ != nullptr) need(cuGraphExecDestroy(long_lived_));
  }

 private:
  bool lru_, kept_;
  std::deque<CUgraphExec> execs_;
  std::deque<CUgraph> graphs_;
  CUgraphExec long_lived_ = nullptr;
  std::vector<CUdeviceptr> held_;
};

}  // namespace

int main(int argc, char** argv) {
  const char* kind = argc > 1 ? argv[1] : "one";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 20000;
  use_device(0);
  need(cuStreamCreate(&g_stream, CU_STREAM_NON_BLOCKING));
  Program program(kind);
  constexpr int kParts = 8;
  double times[kParts];
  for (double& time : times) {
    const double start = seconds();
    for (int i = 0; i < steps / kParts; ++i) program.step(static_cast<unsigned char>(i));
    time = seconds() - start;
  }
  program.end();
  std::printf("failures %d\n", g_failures);
  if (argc > 3 && std::strcmp(argv[3], "--time") == 0) {
    std::fprintf(stderr, "processor time of the first quarter %.3f s, of the last %.3f s\n",
                 times[0] + times[1], times[kParts - 1] + times[kParts - 2]);
  }
  return 0;
}
