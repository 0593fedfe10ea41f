// SPDX-License-Identifier: Apache-2.0
// Names that begin with "cu" and belong to others resolve to the others, by handle and globally.

#include <dlfcn.h>

#include <cstdio>
#include <initializer_list>

int main() {
  void* library = dlopen("liblookalike.so", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    std::printf("no library: %s\n", dlerror());
    return 1;
  }
  for (const char* name : {"cudnnCreate", "cublasCreate", "cu_foo", "cuMemAllocFancy",
                           "cuMemAlloc_v2_extra", "custom"}) {
    const auto by_handle = reinterpret_cast<int (*)()>(dlsym(library, name));
    const auto global = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, name));
    std::printf("%s: %d %d\n", name, by_handle ? by_handle() : -1, global ? global() : -1);
  }
  std::printf("driver function from it: %d\n", dlsym(library, "cuMemAlloc_v2") != nullptr);
  return 0;
}
