// SPDX-License-Identifier: Apache-2.0
// Look-ups without a driver are answered as without the object.
// "Is CUDA in this process?", asked by look-ups of driver functions before there is a driver, in
// the scope of a library that has one, and when everybody has it.

#include <dlfcn.h>

#include <cstdio>
#include <initializer_list>

namespace {

void look(const char* when) {
  void* program = dlopen(nullptr, RTLD_LAZY);
  for (const char* name : {"cuInit", "cuMemAlloc_v2", "cuMemFree_v2", "cuCtxGetCurrent",
                           "cuGetProcAddress", "cuFoo", "cu"}) {
    dlerror();
    const bool global = dlsym(RTLD_DEFAULT, name) != nullptr;
    const bool global_error = dlerror() != nullptr;
    const bool by_handle = dlsym(program, name) != nullptr;
    const bool handle_error = dlerror() != nullptr;
    std::printf("%s: %s: global %d error %d, program %d error %d\n", when, name, global,
                global_error, by_handle, handle_error);
  }
  dlclose(program);
}

}  // namespace

int main() {
  look("before");
  void* library = dlopen("libown_scope.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::printf("no library: %s\n", dlerror());
    return 1;
  }
  const auto finds = reinterpret_cast<int (*)()>(dlsym(library, "finds_driver_in_its_scope"));
  std::printf("library finds it in its scope: %d\n", finds());
  const auto behind = reinterpret_cast<int (*)()>(dlsym(library, "finds_driver_behind_it"));
  std::printf("library finds it behind itself: %d\n", behind());
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  std::printf("wrong version found: %d\n", dlvsym(cuda, "cuMemAlloc_v2", "NO_SUCH_1") != nullptr);
  look("global");
  return 0;
}
