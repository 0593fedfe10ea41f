// SPDX-License-Identifier: Apache-2.0
// Kernels of one device on memory of another, by peer access: as to any memory of cuMemAlloc.
// Access comes before the memory and after it, is ended by one of two contexts, and comes again.

#include <initializer_list>

#include "../driver_codes.h"
#include "../timed_code.h"

namespace {

using namespace timed;

constexpr size_t kWords = 3 << 20;  // several units

CUcontext created(CUdevice device) {
  CUcontext context = nullptr;
  SAY(cuCtxCreate(&context, nullptr, 0, device));
  return context;
}

// A kernel of `worker` over the whole block; what that left is read by the owner.
void work_on(CUcontext owner, CUcontext worker, CUdeviceptr block, uint32_t seed) {
  cuCtxSetCurrent(worker);
  const Kernels kernels;
  CUstream stream = new_stream();
  SAY(fill_words(kernels, stream, block, kWords, seed, /*delay_us=*/0));
  SAY(cuStreamSynchronize(stream));
  cuCtxSetCurrent(owner);
  uint32_t last = 0;
  SAY(cuMemcpyDtoH(&last, block + (kWords - 1) * sizeof last, sizeof last));
  std::printf("last word %u\n", last - seed);
}

CUdeviceptr new_words(CUcontext owner) {
  CUdeviceptr block = 0;
  cuCtxSetCurrent(owner);
  SAY(cuMemAlloc(&block, kWords * sizeof(uint32_t)));
  return block;
}

}  // namespace

int main() {
  SAY(cuInit(0));
  const CUcontext owner = created(0), first = created(1), second = created(1);
  const CUdeviceptr before = new_words(owner);
  for (const CUcontext worker : {first, second}) {
    cuCtxSetCurrent(worker);
    SAY(cuCtxEnablePeerAccess(owner, 0));
    work_on(owner, worker, before, 1);
  }
  const CUdeviceptr after = new_words(owner);
  work_on(owner, first, after, 2);

  cuCtxSetCurrent(first);
  SAY(cuCtxDisablePeerAccess(owner));
  work_on(owner, second, before, 3);
  cuCtxSetCurrent(second);
  SAY(cuCtxDisablePeerAccess(owner));
  SAY(cuCtxDisablePeerAccess(owner));
  cuCtxSetCurrent(first);
  SAY(cuCtxEnablePeerAccess(owner, 0));
  SAY(cuCtxEnablePeerAccess(owner, 0));
  work_on(owner, first, after, 4);

  cuCtxSetCurrent(owner);
  SAY(cuMemFree(before));
  SAY(cuMemFree(after));
  for (const CUcontext context : {first, second, owner}) SAY(cuCtxDestroy(context));
  return 0;
}
