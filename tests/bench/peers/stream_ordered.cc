// SPDX-License-Identifier: Apache-2.0
// The driver's stream-ordered pool. PEER_THRESHOLD is its release threshold in bytes.
#include <cuda.h>

#include <cstdlib>

#include "peer.h"

namespace peer {
namespace {
CUmemoryPool pool = nullptr;
}

void open() {
  const char* text = std::getenv("PEER_THRESHOLD");
  cuuint64_t threshold = text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  if (cuDeviceGetDefaultMemPool(&pool, 0) != CUDA_SUCCESS ||
      cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) != CUDA_SUCCESS) {
    std::exit(1);
  }
}

void* allocate(size_t bytes) {
  CUdeviceptr block = 0;
  return cuMemAllocAsync(&block, bytes, CU_STREAM_LEGACY) == CUDA_SUCCESS
             ? reinterpret_cast<void*>(block)
             : nullptr;
}

void release(void* block, size_t) {
  cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(block), CU_STREAM_LEGACY);
}

uint64_t held_peak() {
  cuuint64_t bytes = 0;
  return cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &bytes) == CUDA_SUCCESS
             ? bytes
             : 0;
}

}  // namespace peer
