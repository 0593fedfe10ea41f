// SPDX-License-Identifier: Apache-2.0
// Graphs end with their thread, with their context, or in another order than they began.
//
// graph_ends HOW WHAT: WHAT is `marked` or `ranges` (graph.h), HOW is
//   threads    a thread ends in its graph, again and again, and other threads have graphs then
//   crowd      more threads at once than may be in graphs
//   order      a range ends before the one that began in it, and by another thread
//   contexts   a context is reset or destroyed under threads that are in graphs
#include <atomic>
#include <barrier>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "graph.h"

namespace {

std::atomic<int> failures{0};

void need(CUresult code) { failures += code == CUDA_SUCCESS ? 0 : 1; }

// Some blocks, written and freed. Where the context ends meanwhile any call may fail.
void work(unsigned seed, int blocks, bool may_fail) {
  const size_t sizes[] = {1000, kMiB / 2, 2 * kMiB - 1, 2 * kMiB + 1, 3 * kMiB};
  const auto tell = [=](CUresult code) {
    if (!may_fail) need(code);
    return code == CUDA_SUCCESS;
  };
  std::vector<CUdeviceptr> live;
  for (int i = 0; i < blocks; ++i) {
    CUdeviceptr block = 0;
    const size_t bytes = sizes[(seed + static_cast<unsigned>(i)) % 5];
    if (!tell(cuMemAlloc(&block, bytes))) continue;
    tell(cuMemsetD8Async(block, 1, bytes, nullptr));
    live.push_back(block);
  }
  for (const CUdeviceptr block : live) tell(cuMemFree(block));
}

void begin(bool ranges) { ranges ? void(nvtxRangePushA("left")) : cistern_graph_begin("left"); }

void graphs_in_turn(const char* what) {
  for (unsigned i = 0; i < 12; ++i) {
    const Graph graph(what, "in turn");
    work(i, 6, false);
    need(cuCtxSynchronize());
  }
}

void threads(const char* what) {
  CUcontext context = use_device(0);
  for (unsigned i = 0; i < 600; ++i) {
    std::thread([&] {
      need(cuCtxSetCurrent(context));
      begin(std::strcmp(what, "ranges") == 0);
      work(i, 1, false);
    }).join();
    if (i % 16 == 0) need(cuCtxSynchronize());
  }
  graphs_in_turn(what);
}

void crowd(const char* what) {
  constexpr unsigned kThreads = 300;
  CUcontext context = use_device(0);
  std::barrier together(kThreads);
  std::vector<std::thread> all;
  for (unsigned i = 0; i < kThreads; ++i) {
    all.emplace_back([&, i] {
      need(cuCtxSetCurrent(context));
      const std::string name = "graph " + std::to_string(i);
      const Graph graph(what, name.c_str());
      together.arrive_and_wait();
      work(i, 1, false);
      together.arrive_and_wait();
    });
  }
  for (std::thread& thread : all) thread.join();
  need(cuCtxSynchronize());
  graphs_in_turn(what);
}

void order() {
  CUcontext context = use_device(0);
  for (unsigned i = 0; i < 100; ++i) {
    const nvtxRangeId_t outer = nvtxRangeStartA("outer");
    work(i, 2, false);
    const nvtxRangeId_t inner = nvtxRangeStartA("inner");
    work(i, 2, false);
    std::thread other([&] {
      need(cuCtxSetCurrent(context));
      const Graph own("ranges", "own");
      work(i, 2, false);
      nvtxRangeEnd(outer);
      work(i, 2, false);
    });
    work(i, 4, false);
    other.join();
    work(i, 2, false);
    nvtxRangeEnd(inner);
    work(i, 1, false);
    need(cuCtxSynchronize());
  }
}

void end_under_threads(const char* what, unsigned round) {
  const bool primary = round % 2 == 0;
  CUcontext context = nullptr;
  if (primary) {
    context = use_device(0);
  } else {
    need(cuCtxCreate(&context, nullptr, 0, 0));
  }
  std::atomic<bool> over{false};
  std::atomic<int> runs{0};
  std::vector<std::thread> all;
  for (unsigned i = 0; i < 3; ++i) {
    all.emplace_back([&, i] {
      need(cuCtxSetCurrent(context));
      const char* names[] = {"one", "two", "three"};
      for (unsigned run = i; !over; ++run) {
        const Graph graph(what, names[run % 3]);
        work(run, 5, true);
        ++runs;
      }
    });
  }
  while (runs < 12) std::this_thread::yield();
  need(primary ? cuDevicePrimaryCtxReset(0) : cuCtxDestroy(context));
  over = true;
  for (std::thread& thread : all) thread.join();
}

void contexts(const char* what) {
  use_device(0);
  for (unsigned round = 0; round < 6; ++round) end_under_threads(what, round);
  use_device(0);
  graphs_in_turn(what);
  need(cuDevicePrimaryCtxReset(0));
  use_device(0);
}

}  // namespace

int main(int, char** arguments) {
  const std::string how = arguments[1];
  const char* what = arguments[2];
  if (how == "threads") threads(what);
  if (how == "crowd") crowd(what);
  if (how == "order") order();
  if (how == "contexts") contexts(what);
  std::printf("%d failures\n", failures.load());
  return failures == 0 ? 0 : 1;
}
