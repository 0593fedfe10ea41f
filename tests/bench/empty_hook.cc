// SPDX-License-Identifier: Apache-2.0
//
// The least a preloaded allocator could do: catch the calls and answer at once. What the object
// costs is measured against it.
#include <cuda.h>

#include <atomic>

namespace {

// Below any address a device hands out, so that nobody mistakes it for a real one.
std::atomic<CUdeviceptr> next_address{512};

}  // namespace

extern "C" CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  *address = next_address.fetch_add(512, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuMemFree_v2(CUdeviceptr address) { return CUDA_SUCCESS; }
