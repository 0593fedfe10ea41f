// SPDX-License-Identifier: Apache-2.0
// With 300 contexts alive, freed memory is used again, and never early.
// The last of 300 contexts works on memory of the first: a block that is freed meanwhile is not
// reused before that work is done. After a synchronisation of all contexts the first one's memory
// is used again, and after the end of the others so is that of a new one.
//
//   many_contexts idle|copy|kernel|pinned
//
// What the last context does: nothing; a copy from the block; a kernel that reads it by peer
// access; a copy from pinned memory of the first.

#include <cstring>
#include <vector>

#include "../driver_codes.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

using timed::Worker;

constexpr size_t kWords = 256, kBytes = 4 * kMiB;
constexpr size_t kUsed = kWords * sizeof(uint32_t);
constexpr uint32_t kDelayUs = 30'000;

std::vector<CUcontext> g_contexts;

void more_contexts(int count, CUdevice device) {
  for (int i = 0; i < count; ++i) {
    CUcontext context = nullptr, popped = nullptr;
    MUST(cuCtxCreate(&context, nullptr, 0, device));
    MUST(cuCtxPopCurrent(&popped));
    g_contexts.push_back(context);
  }
}

void destroy_all() {
  for (CUcontext context : g_contexts) MUST(cuCtxDestroy(context));
  g_contexts.clear();
}

void synchronise_all() {
  for (CUcontext context : g_contexts) {
    MUST(cuCtxSetCurrent(context));
    MUST(cuCtxSynchronize());
  }
}

CUdeviceptr filled_block(uint32_t word) {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, kBytes));
  MUST(cuMemsetD32(block, word, kWords));
  MUST(cuCtxSynchronize());
  return block;
}

uint32_t first_word(CUdeviceptr block) {
  uint32_t word = 0;
  MUST(cuMemcpyDtoH(&word, block, sizeof word));
  return word;
}

// The last context's work on a block of the first, freed meanwhile.
void touch(const Worker& first, const Worker& last, bool by_kernel) {
  first.use();
  const CUdeviceptr block = filled_block(3);
  last.use();
  CUdeviceptr own = 0;
  MUST(cuMemAlloc(&own, kUsed));
  MUST(cuMemsetD32(own, 0, kWords));
  MUST(cuCtxSynchronize());
  if (by_kernel) {
    MUST(cuCtxEnablePeerAccess(first.context, 0));
    MUST(timed::sum_words(last.kernels, last.stream, block, kWords, own, kDelayUs));
  } else {
    MUST(timed::fill_words(last.kernels, last.stream, own, 0, 0, kDelayUs));
    MUST(cuMemcpyPeerAsync(own, last.context, block, first.context, kUsed, last.stream));
  }
  first.use();
  MUST(cuMemFree(block));
  MUST(cuCtxSetCurrent(g_contexts[g_contexts.size() - 2]));  // says nothing about the last
  MUST(cuCtxSynchronize());
  first.use();
  MUST(cuCtxSynchronize());
  const CUdeviceptr next = filled_block(5);
  last.use();
  MUST(cuCtxSynchronize());
  const uint32_t there = first_word(own);
  MUST(cuMemFree(own));
  first.use();
  std::printf("there %u, here %u\n", there, first_word(next));
  MUST(cuMemFree(next));
}

void touch_pinned(const Worker& first, const Worker& last) {
  void* block = nullptr;
  first.use();
  const CUdeviceptr source = filled_block(5);
  MUST(cuMemHostAlloc(&block, kBytes, CU_MEMHOSTALLOC_PORTABLE));
  std::memset(block, 3, kUsed);
  last.use();
  CUdeviceptr own = 0;
  MUST(cuMemAlloc(&own, kUsed));
  MUST(timed::fill_words(last.kernels, last.stream, own, 0, 0, kDelayUs));
  MUST(cuMemcpyHtoDAsync(own, block, kUsed, last.stream));
  first.use();
  MUST(cuMemFreeHost(block));
  MUST(cuCtxSynchronize());
  std::vector<void*> later(8);  // one of them is the block, as soon as that is clean
  for (void*& next : later) {
    MUST(cuMemHostAlloc(&next, kBytes, CU_MEMHOSTALLOC_PORTABLE));
    MUST(cuMemcpyDtoHAsync(next, source, kUsed, first.stream));
  }
  last.use();
  MUST(cuCtxSynchronize());
  std::printf("there %x\n", first_word(own));
  MUST(cuMemFree(own));
  first.use();
  MUST(cuCtxSynchronize());
  for (void* next : later) MUST(cuMemFreeHost(next));
  MUST(cuMemFree(source));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  end_if_it_hangs();
  const bool by_kernel = std::strcmp(argv[1], "kernel") == 0;
  const Worker first(use_device(0));
  if (std::strcmp(argv[1], "pinned") == 0) {
    // There is pinned memory, and as many contexts come and go, before those that count.
    void* block = nullptr;
    MUST(cuMemHostAlloc(&block, kBytes, CU_MEMHOSTALLOC_PORTABLE));
    MUST(cuMemFreeHost(block));
    more_contexts(300, /*device=*/0);
    destroy_all();
  }
  more_contexts(299, /*device=*/0);
  more_contexts(1, /*device=*/by_kernel ? 1 : 0);
  MUST(cuCtxSetCurrent(g_contexts.back()));
  const Worker last(g_contexts.back());
  if (by_kernel || std::strcmp(argv[1], "copy") == 0) touch(first, last, by_kernel);
  if (std::strcmp(argv[1], "pinned") == 0) touch_pinned(first, last);
  synchronise_all();
  first.use();
  if (by_kernel) {
    last.use();
    MUST(cuCtxDisablePeerAccess(first.context));
    first.use();
  }
  allocate_and_free(50, kBytes);
  destroy_all();
  more_contexts(1, 0);
  MUST(cuCtxSetCurrent(g_contexts.back()));
  allocate_and_free(50, kBytes);
  first.use();
  allocate_and_free(50, kBytes);
  return 0;
}
