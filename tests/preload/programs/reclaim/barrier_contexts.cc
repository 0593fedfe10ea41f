// SPDX-License-Identifier: Apache-2.0
// For whose work a free waits where there are several contexts: as the driver's does.
//
//   barrier_contexts copy     another context's copy from the block that is freed
//   barrier_contexts beside   the same, where there is peer access to a third context
//   barrier_contexts pinned   work of the context that pinned memory is of, in a free in another
//   one barrier_contexts turns    the same, behind a free of pinned memory of a context without
//   work barrier_contexts dead     peer access, and the work that the frees wait for dies
//   barrier_contexts synced   peer access, and the program has synchronised its own context

#include <cstring>

#include "../driver_codes.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

constexpr size_t kWords = 64, kBytes = kWords * sizeof(uint32_t);
constexpr uint32_t kDelayUs = 2000;
constexpr int kRounds = 3;

void* new_pinned() {
  void* memory = nullptr;
  MUST(cuMemHostAlloc(&memory, 8192, CU_MEMHOSTALLOC_PORTABLE));
  return memory;
}

CUdeviceptr new_block(size_t bytes) {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, bytes));
  return block;
}

// Two contexts on two devices: `here` is current, and `there` has a stream that is behind a kernel.
struct Two {
  CUcontext here = use_device(0), there = use_device(1);
  timed::Worker worker{there};
  CUdeviceptr words = new_block(kBytes);

  void fill(uint32_t first) const {
    worker.use();
    MUST(timed::fill_words(worker.kernels, worker.stream, words, kWords, first, kDelayUs));
  }
};

void copies(bool beside_peers) {
  const Two two;
  CUcontext third = nullptr;
  if (beside_peers) {
    MUST(cuCtxCreate(&third, nullptr, 0, 1));
    MUST(cuCtxSetCurrent(two.here));
    MUST(cuCtxEnablePeerAccess(third, 0));
  }
  auto* result = static_cast<volatile uint32_t*>(new_pinned());
  int there = 0;
  for (int round = 1; round <= kRounds; ++round) {
    MUST(cuCtxSetCurrent(two.here));
    const CUdeviceptr block = new_block(round == 2 ? 1000 : 4 * kMiB);
    MUST(cuMemsetD32(block, static_cast<unsigned>(round), kWords));
    MUST(cuCtxSynchronize());
    two.fill(0);
    MUST(cuMemcpyDtoHAsync(const_cast<uint32_t*>(result), block, kBytes, two.worker.stream));
    MUST(cuCtxSetCurrent(two.here));
    if (round == 3) MUST(cuCtxSynchronize());  // shows nothing of the other context's copy
    MUST(cuMemFree(block));
    there += result[kWords - 1] == static_cast<unsigned>(round);
  }
  std::printf("copies that were over: %d\n", there);
}

// Its own context's work is waited for, whichever context is current.
void pinned(bool turns) {
  const Two two;
  auto* result = static_cast<volatile uint32_t*>(new_pinned());
  int there = 0;
  for (int round = 1; round <= kRounds; ++round) {
    MUST(cuCtxSetCurrent(two.there));
    void* block = new_pinned();
    MUST(cuCtxSetCurrent(two.here));
    void* of_idle = new_pinned();
    two.fill(static_cast<uint32_t>(round));
    MUST(cuMemcpyDtoHAsync(const_cast<uint32_t*>(result), two.words, kBytes, two.worker.stream));
    MUST(cuCtxSetCurrent(two.here));
    if (turns) MUST(cuMemFreeHost(of_idle));
    MUST(cuMemFreeHost(block));
    there += result[0] == static_cast<unsigned>(round);
    if (!turns) MUST(cuMemFreeHost(of_idle));
  }
  std::printf("copies that were over: %d\n", there);
}

void dead() {
  const Two two;
  MUST(cuCtxSetCurrent(two.here));
  MUST(cuCtxEnablePeerAccess(two.there, 0));
  void *host = new_pinned(), *freed = new_pinned();
  const CUdeviceptr small = new_block(1000), large = new_block(4 * kMiB);
  MUST(cuMemcpyDtoHAsync(host, large, kBytes, nullptr));
  SAY(cuMemFree(small));
  SAY(cuMemFree(large));
  SAY(cuMemFreeHost(freed));
  SAY(cuCtxSynchronize());
}

void synced() {
  const Two two;
  MUST(cuCtxSetCurrent(two.here));
  MUST(cuCtxEnablePeerAccess(two.there, 0));
  for (int round = 0; round < kRounds; ++round) {
    const CUdeviceptr block = new_block(4 * kMiB);
    two.fill(0);
    MUST(cuCtxSetCurrent(two.here));
    MUST(cuCtxSynchronize());
    SAY(cuMemFree(block));
  }
}

}  // namespace

int main(int argc, char** argv) {
  end_if_it_hangs();
  const char* mode = argc > 1 ? argv[1] : "copy";
  if (std::strcmp(mode, "copy") == 0) copies(/*beside_peers=*/false);
  if (std::strcmp(mode, "beside") == 0) copies(/*beside_peers=*/true);
  if (std::strcmp(mode, "pinned") == 0) pinned(/*turns=*/false);
  if (std::strcmp(mode, "turns") == 0) pinned(/*turns=*/true);
  if (std::strcmp(mode, "dead") == 0) dead();
  if (std::strcmp(mode, "synced") == 0) synced();
  return 0;
}
