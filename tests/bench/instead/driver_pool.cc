// SPDX-License-Identifier: Apache-2.0
// The driver's own pool: cudaMallocAsync and cudaFreeAsync. INSTEAD_THRESHOLD is its release
// threshold in bytes; without one the driver's, 0.
#include <algorithm>
#include <cstdlib>

#include "instead.h"

namespace instead {
namespace {

uint64_t peak = 0;

CUmemoryPool pool() {
  static CUmemoryPool found = [] {
    CUmemoryPool own = nullptr;
    const char* text = std::getenv("INSTEAD_THRESHOLD");
    cuuint64_t threshold = text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
    if (cuDeviceGetDefaultMemPool(&own, 0) != CUDA_SUCCESS ||
        cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) != CUDA_SUCCESS) {
      std::exit(1);
    }
    return own;
  }();
  return found;
}

}  // namespace

CUresult allocate(size_t bytes, CUstream stream, CUdeviceptr* out) {
  const CUresult code = cuMemAllocFromPoolAsync(out, bytes, pool(), stream);
  cuuint64_t held = 0;
  if (cuMemPoolGetAttribute(pool(), CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &held) == CUDA_SUCCESS)
    peak = std::max<uint64_t>(peak, held);
  return code;
}

CUresult release(CUdeviceptr address, CUstream stream) { return cuMemFreeAsync(address, stream); }

uint64_t held_peak() { return peak; }

}  // namespace instead
