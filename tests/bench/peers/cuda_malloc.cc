// SPDX-License-Identifier: Apache-2.0
// cudaMalloc and cudaFree: the driver alone, or Cistern where it is preloaded.
#include <cuda_runtime_api.h>

#include "peer.h"

namespace peer {

void open() {}

void* allocate(size_t bytes) {
  void* block = nullptr;
  return cudaMalloc(&block, bytes) == cudaSuccess ? block : nullptr;
}

void release(void* block, size_t) { cudaFree(block); }

uint64_t held_peak() { return 0; }

}  // namespace peer
