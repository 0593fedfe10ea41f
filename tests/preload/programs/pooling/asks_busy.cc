// SPDX-License-Identifier: Apache-2.0
// A program that asks how much memory is free waits for nothing, and gets all that it was told.
// Half of its blocks are live and half are freed. It asks while the device is idle, and again while
// one kernel waits for the host and others come and go.
//
//   asks_busy KB COUNT asks|takes [busy|graph]
//
// asks: only that. takes: then allocates all that it was told, in blocks as large as they come.
// busy: a kernel uses the blocks while they are freed. graph: a graph that still exists used them.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../driver_codes.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

constexpr int kQuestions = 50;

// What the last question told; it must be the same each time.
size_t ask(const timed::Kernels& kernels, CUstream stream, CUdeviceptr words) {
  size_t told = 0, differ = 0;
  const Naps naps;
  for (int i = 0; i < kQuestions; ++i) {
    size_t bytes = 0, total = 0;
    if (stream != nullptr) MUST(timed::fill_words(kernels, stream, words, 64, 1, 5));
    MUST(cuMemGetInfo(&bytes, &total));
    differ += i != 0 && bytes != told;
    told = bytes;
  }
  std::printf("answers that differ: %zu, at once: %d\n", differ, naps.few());
  return told;
}

// What there is in whole pages of the driver. The last page may be in pieces.
bool takes(size_t told, std::vector<CUdeviceptr>& blocks) {
  constexpr size_t kLeast = 512;
  size_t got = 0;
  for (size_t bytes = told; bytes >= kLeast && got < told;) {
    CUdeviceptr block = 0;
    if (cuMemAlloc(&block, bytes) == CUDA_SUCCESS) {
      blocks.push_back(block);
      got += bytes;
      bytes = std::min(bytes, told - got);
    } else {
      bytes = bytes / 2 / kLeast * kLeast;
    }
  }
  return got + 2 * kMiB > told;
}

// What the driver would have left beside `count` such blocks, of which it cuts small ones from
// pages.
size_t pages_of(size_t bytes, size_t count) {
  constexpr size_t kPage = 2 * kMiB;
  const size_t in_page = std::max<size_t>(1, bytes < kMiB ? kPage / bytes : 1);
  const size_t of_block = bytes < kMiB ? kPage : (bytes + kPage - 1) / kPage * kPage;
  return (count + in_page - 1) / in_page * of_block;
}

// It stays until the program ends.
void launch_graph(const timed::Kernels& kernels, CUstream stream,
                  const std::vector<CUdeviceptr>& blocks) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (const CUdeviceptr block : blocks) MUST(timed::fill_words(kernels, stream, block, 16, 1, 0));
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphLaunch(exec, stream));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const size_t bytes = std::strtoull(argv[1], nullptr, 10) << 10;
  const size_t count = std::strtoull(argv[2], nullptr, 10);
  const bool all = std::strcmp(argv[3], "takes") == 0;
  const bool busy = argc > 4 && std::strcmp(argv[4], "busy") == 0;
  const bool graph = argc > 4 && std::strcmp(argv[4], "graph") == 0;
  end_if_it_hangs();
  use_device(0);
  const timed::Kernels kernels;
  CUstream worker = timed::new_stream(), stuck = timed::new_stream();
  size_t before = 0, total = 0;
  MUST(cuMemGetInfo(&before, &total));

  std::vector<CUdeviceptr> blocks(count);
  for (CUdeviceptr& block : blocks) {
    MUST(cuMemAlloc(&block, bytes));
    MUST(timed::fill_words(kernels, worker, block, 64, 1, 0));
  }
  if (graph) launch_graph(kernels, worker, blocks);
  MUST(cuCtxSynchronize());
  if (busy) MUST(timed::fill_words(kernels, worker, blocks[0], 64, 2, 20'000));
  for (size_t i = count / 2; i < count; ++i) MUST(cuMemFree(blocks[i]));
  blocks.resize(count / 2);

  const size_t left = before - pages_of(bytes, count / 2);
  const size_t idle = ask(kernels, nullptr, 0);
  timed::Held held(kernels, stuck);
  const size_t told = ask(kernels, worker, blocks[0]);
  std::printf("what the driver has left: idle %d, busy %d\n", idle >= left, told >= left);
  if (all) std::printf("all of it is there: %d\n", takes(told, blocks));

  held.end();
  MUST(cuCtxSynchronize());
  for (const CUdeviceptr block : blocks) MUST(cuMemFree(block));
  std::printf("done\n");
  return 0;
}
