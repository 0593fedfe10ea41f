// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory (pooled/pinned_memory.h).
#include "shim/entry/faces.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/pooled/pinned_memory.h"
#include "shim/watch/watch.h"

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces
using cistern::alloc::Memory;

namespace {

CUresult noted_host_memory(CUresult result, void* const* memory, size_t bytes) {
  if (result == CUDA_SUCCESS) host_memory_appeared(reinterpret_cast<uintptr_t>(*memory), bytes);
  return result;
}

}  // namespace

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  return noted_host_memory(watch_allocation(Memory::pinned, pp, bytesize, nullptr,
                                            [=] { return allocate_pinned(pp, bytesize, Flags); }),
                           pp, bytesize);
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return noted_host_memory(
      watch_allocation(Memory::pinned, pp, bytesize, nullptr,
                       [=] { return allocate_pinned(pp, bytesize, /*flags=*/0); }),
      pp, bytesize);
}

CUresult cuMemFreeHost(void* p) {
  return watch_free(Memory::pinned, p, nullptr, [=] { return free_pinned(p); });
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) { return pinned_flags(pFlags, p); }

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  const CUresult result = pinned_device_pointer(pdptr, p, Flags);
  if (result == CUDA_SUCCESS && *pdptr != reinterpret_cast<CUdeviceptr>(p)) {
    everything_becomes_visible();
  }
  return result;
}
