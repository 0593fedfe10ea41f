// SPDX-License-Identifier: Apache-2.0
// A plugin that bypasses the preload: the program can free what it allocated, and both go on.
// The plugin is loaded with RTLD_DEEPBIND and allocates past any preload; the program may be under
// one.

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <initializer_list>

namespace {

using AllocFn = int (*)(CUdeviceptr*, size_t);
using FreeFn = int (*)(CUdeviceptr);

}  // namespace

int main() {
  void* plugin = dlopen("libdeepbind_user.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (plugin == nullptr) {
    std::printf("no plugin: %s\n", dlerror());
    return 1;
  }
  const auto plugin_alloc = reinterpret_cast<AllocFn>(dlsym(plugin, "plugin_alloc"));
  const auto plugin_free = reinterpret_cast<FreeFn>(dlsym(plugin, "plugin_free"));
  CUcontext context;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  for (const size_t bytes : {size_t{1000}, size_t{3} << 20}) {
    CUdeviceptr theirs = 0, own = 0;
    std::printf("plugin allocates %d\n", plugin_alloc(&theirs, bytes));
    std::printf("program fills %d\n", cuMemsetD8(theirs, 1, bytes));
    std::printf("program frees %d\n", cuMemFree(theirs));
    std::printf("program frees it again %d\n", cuMemFree(theirs));
    std::printf("program allocates %d\n", cuMemAlloc(&own, bytes));
    std::printf("plugin allocates %d\n", plugin_alloc(&theirs, bytes));
    std::printf("both are apart %d\n", own + bytes <= theirs || theirs + bytes <= own);
    std::printf("plugin frees its own %d\n", plugin_free(theirs));
    std::printf("program frees its own %d\n", cuMemFree(own));
  }
  return 0;
}
