// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory (pooled/pinned_memory.h).
#include "shim/entry/faces.h"
#include "shim/order/barrier/host_visible.h"
#include "shim/pooled/pinned_memory.h"
#include "shim/watch/watch.h"

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces
using cistern::alloc::Memory;

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  host_comes_within_reach();
  return watch_allocation(Memory::pinned, pp, bytesize, nullptr,
                          [=] { return allocate_pinned(pp, bytesize, Flags); });
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  host_comes_within_reach();
  return watch_allocation(Memory::pinned, pp, bytesize, nullptr,
                          [=] { return allocate_pinned(pp, bytesize, /*flags=*/0); });
}

CUresult cuMemFreeHost(void* p) {
  return watch_free(Memory::pinned, p, nullptr, [=] { return free_pinned(p); });
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) { return pinned_flags(pFlags, p); }

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  return pinned_device_pointer(pdptr, p, Flags);
}
