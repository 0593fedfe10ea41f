// SPDX-License-Identifier: Apache-2.0
// Work that no hook sees, under way while a block it uses is freed, the block's context is waited
// for and the next block of its size is filled. The driver waits for the work in the free; the
// watcher tells if memory was used again too early. SIMCUDA_LATENCY makes cuMemsetD8Async slow.
#pragma once

#include <cstring>
#include <vector>

#include "../timed_code.h"

namespace unseen {

using Copy = CUresult (*)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);

constexpr size_t kWords = 1024, kBytes = kWords * sizeof(uint32_t);

inline CUdeviceptr new_block(size_t bytes, unsigned word) {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, bytes));
  MUST(cuMemsetD32(block, word, kWords));
  MUST(cuCtxSynchronize());
  return block;
}

// Hands over a slow fill of `to`, then the copy, both on `stream`.
inline void begin(Copy copy, CUdeviceptr to, CUdeviceptr from, CUstream stream) {
  MUST(cuMemsetD8Async(to, 1, kBytes, stream));
  MUST(copy(to, from, kBytes, stream));
}

// The block is freed and its like used on another stream, several times. Prints what is there.
inline void free_and_use(CUcontext owner, CUdeviceptr block, size_t bytes) {
  MUST(cuCtxSetCurrent(owner));
  CUstream other = timed::new_stream();
  for (int i = 0; i < 3; ++i) {
    MUST(cuMemFree(block));
    MUST(cuCtxSynchronize());
    MUST(cuMemAlloc(&block, bytes));
    MUST(cuMemsetD32Async(block, 50 + i, kWords, other));
    MUST(cuStreamSynchronize(other));
  }
  uint32_t seen = 0;
  MUST(cuMemcpyDtoH(&seen, block, sizeof seen));
  std::printf("here %u\n", seen);
  MUST(cuMemFree(block));
}

inline void tell(CUcontext context, CUdeviceptr memory) {
  std::vector<uint32_t> words(kWords);
  MUST(cuCtxSetCurrent(context));
  MUST(cuCtxSynchronize());
  MUST(cuMemcpyDtoH(words.data(), memory, kBytes));
  unsigned sum = 0;
  for (const uint32_t word : words) sum += word;
  std::printf("there %u\n", sum);
}

// A copy from a block of `owner` to memory of `other`, by a stream of the latter.
inline void copies(CUcontext owner, CUcontext other, Copy copy, size_t bytes) {
  MUST(cuCtxSetCurrent(other));
  const CUdeviceptr there = new_block(kBytes, 0);
  CUstream stream = timed::new_stream();
  MUST(cuCtxSetCurrent(owner));
  const CUdeviceptr block = new_block(bytes, 3);
  MUST(cuCtxSetCurrent(other));
  begin(copy, there, block, stream);
  free_and_use(owner, block, bytes);
  tell(other, there);
}

}  // namespace unseen
