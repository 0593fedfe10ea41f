// SPDX-License-Identifier: Apache-2.0
// The driver found by dlopen with dlsym, by dlvsym, and by cuGetProcAddress in both its forms.
// The first argument says how: "dlsym", "dlvsym" or "resolver".

#include <dlfcn.h>

#include <cstring>

#include "../driver_session.h"

namespace {

using FindFn = void* (*)(void* library, const char* exported, const char* name, int version);

void* by_dlsym(void* library, const char* exported, const char*, int) {
  return dlsym(library, exported);
}

// A driver need not give its symbols versions; then only the plain question has an answer.
void* by_dlvsym(void* library, const char* exported, const char*, int) {
  void* versioned = dlvsym(library, exported, "libcuda.so.1");
  std::printf("%s: versioned %d\n", exported, versioned != nullptr);
  return versioned != nullptr ? versioned : dlsym(library, exported);
}

// Every other question goes to the five-argument form, which the first form has to find.
void* by_resolver(void* library, const char*, const char* name, int version) {
  using First = CUresult (*)(const char*, void**, int, cuuint64_t);
  using Second =
      CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  static int turn = 0;
  const auto first = reinterpret_cast<First>(dlsym(library, "cuGetProcAddress"));
  void* second = nullptr;
  void* found = nullptr;
  if (first == nullptr || first("cuGetProcAddress", &second, 12000, 0) != CUDA_SUCCESS) {
    return nullptr;
  }
  CUdriverProcAddressQueryResult status{};
  if (turn++ % 2 == 0) {
    first(name, &found, version, 0);
  } else {
    reinterpret_cast<Second>(second)(name, &found, version, 0, &status);
  }
  return found;
}

template <typename Function>
bool find(Function* out, FindFn how, void* library, const char* exported, const char* name,
          int version) {
  *out = reinterpret_cast<Function>(how(library, exported, name, version));
  if (*out == nullptr) std::printf("%s not found\n", exported);
  return *out != nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "dlsym";
  const FindFn how = std::strcmp(way, "dlvsym") == 0     ? by_dlvsym
                     : std::strcmp(way, "resolver") == 0 ? by_resolver
                                                         : by_dlsym;
  void* cuda = dlopen("libcuda.so.1", RTLD_LAZY);
  if (cuda == nullptr) {
    std::printf("no driver\n");
    return 1;
  }
  DriverCalls calls{};
  const bool complete =
      find(&calls.init, how, cuda, "cuInit", "cuInit", 2000) &&
      find(&calls.retain, how, cuda, "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain",
           7000) &&
      find(&calls.set_current, how, cuda, "cuCtxSetCurrent", "cuCtxSetCurrent", 4000) &&
      find(&calls.alloc, how, cuda, "cuMemAlloc_v2", "cuMemAlloc", 3020) &&
      find(&calls.free, how, cuda, "cuMemFree_v2", "cuMemFree", 3020) &&
      find(&calls.info, how, cuda, "cuMemGetInfo_v2", "cuMemGetInfo", 3020) &&
      find(&calls.range, how, cuda, "cuMemGetAddressRange_v2", "cuMemGetAddressRange", 3020) &&
      find(&calls.fill, how, cuda, "cuMemsetD8_v2", "cuMemsetD8", 3020) &&
      find(&calls.to_device, how, cuda, "cuMemcpyHtoD_v2", "cuMemcpyHtoD", 3020) &&
      find(&calls.to_host, how, cuda, "cuMemcpyDtoH_v2", "cuMemcpyDtoH", 3020) &&
      find(&calls.synchronize, how, cuda, "cuCtxSynchronize", "cuCtxSynchronize", 2000);
  return complete ? run_session(calls) : 1;
}
