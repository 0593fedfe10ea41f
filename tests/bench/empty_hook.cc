// SPDX-License-Identifier: Apache-2.0
//
// The least a preloaded allocator could do: catch the calls and answer at once, or hand them on.
// What the object costs is measured against it.
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>

namespace {

// Below any address a device hands out, so that nobody mistakes it for a real one.
std::atomic<CUdeviceptr> next_address{512};

const auto driver_launch =
    reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(RTLD_NEXT, "cuLaunchKernel"));

}  // namespace

extern "C" CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  *address = next_address.fetch_add(512, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuMemFree_v2(CUdeviceptr address) { return CUDA_SUCCESS; }

extern "C" CUresult cuLaunchKernel(CUfunction kernel, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, CUstream stream,
                                   void** parameters, void** extra) {
  return driver_launch(kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                       stream, parameters, extra);
}
