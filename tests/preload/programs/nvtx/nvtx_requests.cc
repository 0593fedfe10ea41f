// SPDX-License-Identifier: Apache-2.0
// Requests can be chosen by the NVTX ranges of every kind that they are made in.
//
// 4 MiB are asked for in a range that was pushed, 5 in one that was started, 6 and 7 the same in a
// domain with registered strings, 8 in a range inside such a one, and 9 in none.
#include <cuda.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdio>

namespace {

// A frame of every request, which the log names.
[[gnu::noinline]] void take(size_t mib) {
  CUdeviceptr block = 0;
  if (cuMemAlloc(&block, mib << 20) != CUDA_SUCCESS || cuMemFree(block) != CUDA_SUCCESS ||
      cuCtxSynchronize() != CUDA_SUCCESS) {
    std::printf("%zu failed\n", mib);
  }
}

void in_ranges(const nvtxDomainHandle_t domain, const nvtxEventAttributes_t& registered) {
  nvtxRangePushA("optimizer");
  take(4);
  nvtxRangePop();
  const nvtxRangeId_t started = nvtxRangeStartA("optimizer");
  take(5);
  nvtxRangeEnd(started);
  nvtxDomainRangePushEx(domain, &registered);
  take(6);
  nvtxDomainRangePop(domain);
  const nvtxRangeId_t in_domain = nvtxDomainRangeStartEx(domain, &registered);
  take(7);
  nvtxDomainRangeEnd(domain, in_domain);
  nvtxDomainRangePushEx(domain, &registered);
  nvtxRangePushA("inner");
  take(8);
  nvtxRangePop();
  nvtxDomainRangePop(domain);
  take(9);
}

}  // namespace

int main() {
  CUcontext context = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS) {
    return 1;
  }
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("trainer");
  nvtxEventAttributes_t registered{};
  registered.version = NVTX_VERSION;
  registered.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  registered.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  registered.message.registered = nvtxDomainRegisterStringA(domain, "step");
  for (int round = 0; round < 3; ++round) in_ranges(domain, registered);
  std::puts("done");
}
