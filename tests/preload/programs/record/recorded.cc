// SPDX-License-Identifier: Apache-2.0
// Each kind of memory is taken and given back under whoever watches as without.
//
// Two blocks a kind, of which one stays; one that is refused; a context that ends with a block in
// it.
#include <cuda.h>

#include <cstdio>

#include "../kinds.h"

namespace {

constexpr size_t kBytes = size_t{4} << 20;

void both(const Kind& kind) {
  Piece stays, goes;
  const CUresult first = allocate(kind, &stays, kBytes);
  const CUresult second = allocate(kind, &goes, kBytes);
  const CUresult freed = kind.free(&goes);
  std::printf("%s: %d %d, freed %d\n", kind.name, first, second, freed);
}

void pinned_and_managed() {
  void *stays = nullptr, *goes = nullptr;
  CUdeviceptr managed = 0;
  SAY(cuMemHostAlloc(&stays, kBytes, 0));
  SAY(cuMemAllocHost(&goes, kBytes));
  SAY(cuMemFreeHost(goes));
  SAY(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  SAY(cuMemFree(managed));
}

void another_context() {
  CUcontext context = nullptr;
  CUdeviceptr block = 0;
  SAY(cuCtxCreate(&context, nullptr, 0, 0));
  SAY(cuMemAlloc(&block, kBytes));
  SAY(cuCtxDestroy(context));
}

}  // namespace

int main() {
  CUcontext context = nullptr;
  CUdeviceptr none = 0;
  SAY(cuInit(0));
  SAY(cuDevicePrimaryCtxRetain(&context, 0));
  SAY(cuCtxSetCurrent(context));
  for (const Kind& kind : kinds::kAll) both(kind);
  pinned_and_managed();
  SAY(cuCtxSynchronize());
  SAY(cuMemAlloc(&none, size_t{1} << 45));
  another_context();
}
