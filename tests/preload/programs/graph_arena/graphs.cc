// SPDX-License-Identifier: Apache-2.0
// Graphs that run one after the other, each with blocks that end with it and one that stays.
//
// graphs HOW ROUNDS: HOW is
//   marked      by the program's own calls; ranges: by NVTX ranges; unmarked: by a synchronisation
//   in_a_row    as marked, without a synchronisation between two graphs
//   growing     as marked; the graph needs more in its second half
//   at_once     as marked, on two threads at the same time
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "graph.h"

namespace {

std::atomic<int> failures{0};

void need(CUresult code) { failures += code == CUDA_SUCCESS ? 0 : 1; }

// Writes blocks of `bytes` and a little less, reads the last one, and frees all, perhaps while they
// are being written.
void work(int blocks, size_t bytes, bool frees_at_end) {
  std::vector<CUdeviceptr> live;
  const auto size = [&](size_t i) { return bytes - 4096 * i; };
  unsigned seen = 0;
  for (int i = 0; i < blocks; ++i) {
    CUdeviceptr block = 0;
    need(cuMemAlloc(&block, size(live.size())));
    need(cuMemsetD32Async(block, static_cast<unsigned>(i), size(live.size()) / 4, nullptr));
    live.push_back(block);
  }
  need(cuMemcpyDtoH(&seen, live.back() + size(live.size() - 1) - 4, 4));
  if (seen != static_cast<unsigned>(blocks - 1)) ++failures;
  for (size_t i = 0; i < live.size(); ++i) {
    if (!frees_at_end) need(cuMemsetD32Async(live[i], 7, size(i) / 4, nullptr));
    need(cuMemFree(live[i]));
  }
}

struct Model {
  const char* name;
  int blocks;
  CUdeviceptr weight = 0;

  void run(const char* how, int more, bool sync) {
    {
      const Graph graph(how, name);
      if (weight == 0) {
        need(cuMemAlloc(&weight, kMiB));
        need(cuMemsetD8(weight, 9, kMiB));
      }
      work(blocks + more, 4 * kMiB, sync);
    }
    if (sync) need(cuCtxSynchronize());
  }
  void end() {
    unsigned char last = 0;
    need(cuMemcpyDtoH(&last, weight + kMiB - 1, 1));
    if (last != 9) ++failures;
    need(cuMemFree(weight));
  }
};

void at_once(CUcontext context, int rounds) {
  std::barrier together(2);
  const auto run = [&](const char* name) {
    need(cuCtxSetCurrent(context));
    for (int i = 0; i < rounds; ++i) {
      const Graph graph("marked", name);
      together.arrive_and_wait();
      work(3, 4 * kMiB, true);
      together.arrive_and_wait();
      need(cuCtxSynchronize());  // what one freed waits for the other's work no longer
    }
  };
  std::thread other(run, "other");
  run("one");
  other.join();
}

}  // namespace

int main(int, char** arguments) {
  const char* how = arguments[1];
  const int rounds = std::atoi(arguments[2]);
  const CUcontext context = use_device(0);
  const bool growing = std::strcmp(how, "growing") == 0;
  const bool sync = std::strcmp(how, "in_a_row") != 0;
  if (std::strcmp(how, "at_once") == 0) {
    at_once(context, rounds);
  } else {
    Model small{"small", 3}, large{"large", 8};
    for (int i = 0; i < rounds; ++i) {
      small.run(how, 0, sync);
      large.run(how, growing && i >= rounds / 2 ? 4 : 0, sync);
    }
    need(cuCtxSynchronize());
    small.end();
    large.end();
  }
  std::printf("%d failures\n", failures.load());
  return failures == 0 ? 0 : 1;
}
