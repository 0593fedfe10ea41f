// SPDX-License-Identifier: Apache-2.0
// A program that defines a driver function itself: everybody gets that one.
// A program with a cuMemAlloc_v2 of its own, which counts and hands on: everybody's look-ups and
// calls must get that one. And an error of the loader that nobody asked for yet, which allocations
// and frees must leave alone.

#include <dlfcn.h>

#include "../driver_codes.h"

namespace {

int g_calls = 0;

}  // namespace

extern "C" CUresult cuMemAlloc_v2(CUdeviceptr* block, size_t bytes) {
  ++g_calls;
  static const auto next =
      reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(dlsym(RTLD_NEXT, "cuMemAlloc_v2"));
  return next(block, bytes);
}

int main() {
  use_device(0);
  CUdeviceptr block;
  std::printf("own definition is found: %d\n",
              dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == reinterpret_cast<void*>(&cuMemAlloc_v2));
  dlsym(RTLD_DEFAULT, "no_such_name");
  SAY(cuMemAlloc(&block, 100));
  SAY(cuMemFree(block));
  std::printf("error is kept: %d\n", dlerror() != nullptr);
  allocate_and_free(100, 4096);
  std::printf("calls %d\n", g_calls);
  return 0;
}
