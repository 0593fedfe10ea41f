// SPDX-License-Identifier: Apache-2.0
// Memory that was freed before is there at once, whatever runs later and waits for the host.
// Blocks are used, synchronised and freed; work begins that ends only when the host says so; then
// all that is told as free is allocated. A pool that gives memory back by a free that waits would
// never return.
//
//   later_work KB host_function|host_function_v2|kernel whole|pieces idle|busy [COUNT]
//
// whole: in one block. pieces: in blocks as large as they come. busy: a short kernel is under way
// when the blocks are freed, so that they are clean only after it.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "../newer.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

void wait_until(void* flag) {
  while (!static_cast<std::atomic<bool>*>(flag)->load()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Blocks of less than this are not asked for: what a device has left over in smaller ones is of no
// use to anyone.
constexpr size_t kLeast = 512;

// Of what is asked for in pieces some is too large, and refused after a wait that has its bounds:
// that comes to some hundred naps, and was never more than two thousand.
constexpr long kInPieces = 5000;

size_t allocate_in_pieces(size_t told, std::vector<CUdeviceptr>& blocks) {
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
  return got;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const size_t bytes = std::strtoull(argv[1], nullptr, 10) << 10;
  const bool by_kernel = std::strcmp(argv[2], "kernel") == 0;
  const bool whole = std::strcmp(argv[3], "whole") == 0;
  const bool busy = std::strcmp(argv[4], "busy") == 0;
  const int count = argc > 5 ? std::atoi(argv[5]) : 1;
  end_if_it_hangs();
  use_device(0);
  const timed::Kernels kernels;
  CUstream worker = timed::new_stream(), stuck = timed::new_stream();

  std::vector<CUdeviceptr> blocks(static_cast<size_t>(count));
  for (CUdeviceptr& block : blocks) {
    MUST(cuMemAlloc(&block, bytes));
    MUST(timed::fill_words(kernels, worker, block, 64, 1, 0));
  }
  MUST(cuCtxSynchronize());
  if (busy) MUST(timed::fill_words(kernels, worker, blocks[0], 64, 2, 20'000));
  for (const CUdeviceptr block : blocks) MUST(cuMemFree(block));

  std::atomic<bool> go{false};
  timed::Held* held = nullptr;
  if (by_kernel) {
    held = new timed::Held(kernels, stuck);
  } else if (std::strcmp(argv[2], "host_function_v2") == 0) {
    const unsigned blocking = 0;
    MUST(NEWER(cuLaunchHostFunc_v2, "cuLaunchHostFunc", 13010)(stuck, wait_until, &go, blocking));
  } else {
    MUST(cuLaunchHostFunc(stuck, wait_until, &go));
  }

  const Naps naps;
  const size_t told = free_memory();
  blocks.assign(1, 0);
  if (whole) {
    MUST(cuMemAlloc(blocks.data(), told));
  } else {
    blocks.clear();
    const size_t got = allocate_in_pieces(told, blocks);
    // A piece that is no multiple of the driver's pages may cost a part of one.
    if (got + 2 * kMiB <= told) std::printf("told %zu, got %zu\n", told, got);
  }
  std::printf("all that is told as free is there: at once %d\n", naps.few(whole ? 500 : kInPieces));
  if (CUdeviceptr more = 0; cuMemAlloc(&more, told) == CUDA_SUCCESS) {
    std::printf("and as much again\n");
  }
  std::printf("refused at once %d\n", naps.few(whole ? 1500 : 2 * kInPieces));

  go = true;
  if (held != nullptr) held->end();
  MUST(cuCtxSynchronize());
  for (const CUdeviceptr block : blocks) MUST(cuMemFree(block));
  std::printf("done\n");
  return 0;
}
