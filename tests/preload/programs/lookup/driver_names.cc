// SPDX-License-Identifier: Apache-2.0
// Every way to look a name up answers as without the object, suffix-less names too.
// Looks up names as libraries do that fill their own table of the driver by plain dlsym: with and
// without the suffix, through the library, the global scope and twice. Prints what is there; the
// suffix-less names are the oldest ABI (32-bit addresses), so only those are called that have no
// other.

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>

int main() {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (cuda == nullptr) return 1;
  constexpr const char* kNames[] = {
      "cuInit",           "cuMemAlloc",           "cuMemAlloc_v2",       "cuMemFree",
      "cuMemFree_v2",     "cuMemGetInfo",         "cuMemGetInfo_v2",     "cuMemGetAddressRange",
      "cuMemHostAlloc",   "cuMemFreeHost",        "cuCtxSynchronize",    "cuMemAllocAsync",
      "cuGetProcAddress", "cuMemAllocAsync_ptsz", "cuGetProcAddress_v2", "cuNoSuchFunction"};
  for (const char* name : kNames) {
    void* found = dlsym(cuda, name);
    std::printf("%s: library %d, same again %d, global scope %d, next %d, no error %d\n", name,
                found != nullptr, found == dlsym(cuda, name), dlsym(RTLD_DEFAULT, name) == found,
                dlsym(RTLD_NEXT, name) == found,
                dlsym(cuda, name) == nullptr || dlerror() == nullptr);
  }
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(cuda, "cuInit"));
  const auto count = reinterpret_cast<CUresult (*)(int*)>(dlsym(cuda, "cuDeviceGetCount"));
  int devices = 0;
  std::printf("init %d, count %d, any device %d\n", init(0), count(&devices), devices > 0);
  return 0;
}
