// SPDX-License-Identifier: Apache-2.0
// PyTorch's caching allocator, from libc10_cuda.so of its package.
#include <c10/cuda/CUDACachingAllocator.h>

#include "peer.h"

namespace peer {

namespace torch = c10::cuda::CUDACachingAllocator;

void open() { torch::init(1); }

void* allocate(size_t bytes) {
  try {
    return torch::raw_alloc(bytes);
  } catch (const c10::OutOfMemoryError&) {
    return nullptr;
  }
}

void release(void* block, size_t) { torch::raw_delete(block); }

uint64_t held_peak() { return 0; }

}  // namespace peer
