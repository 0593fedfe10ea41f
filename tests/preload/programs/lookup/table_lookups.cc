// SPDX-License-Identifier: Apache-2.0
// Looks up every driver function of the table in all ways there are, and tells whether they agree.
// What a look-up of the whole program's symbols finds is the first definition, so the others agree
// with it only if they find the hook too. A function that the driver lacks is found in no way.

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace {

constexpr const char* kSymbols[] = {
#define CISTERN_HOOK(symbol, parameters, arguments) #symbol,
#include "shim/hooks.def"
#undef CISTERN_HOOK
};

// cuGetProcAddress is asked for the name that the versions and variants of a function share.
std::string shared_name(std::string symbol) {
  for (const char* suffix : {"_ptsz", "_ptds", "_v2", "_v3", "_v4"}) {
    const size_t length = std::strlen(suffix);
    if (symbol.size() > length && symbol.compare(symbol.size() - length, length, suffix) == 0) {
      symbol.resize(symbol.size() - length);
    }
  }
  return symbol;
}

// Whether a function that the resolver answered is the program's function of that name.
void resolve(const std::string& name, int version, cuuint64_t flags) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  Dl_info info{};
  const CUresult result = cuGetProcAddress(name.c_str(), &function, version, flags, &status);
  if (result != CUDA_SUCCESS || function == nullptr || dladdr(function, &info) == 0) {
    std::printf("  version %d, flags %d: %d, none\n", version, static_cast<int>(flags), result);
    return;
  }
  std::printf("  version %d, flags %d: %s, the same %d\n", version, static_cast<int>(flags),
              info.dli_sname, function == dlsym(RTLD_DEFAULT, info.dli_sname));
}

}  // namespace

int main() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  cuInit(0);
  for (const char* symbol : kSymbols) {
    void* everywhere = dlsym(RTLD_DEFAULT, symbol);
    void* in_driver = dlsym(driver, symbol);
    void* next = dlsym(RTLD_NEXT, symbol);
    std::printf("%s: found %d, %d, next %d, the same %d\n", symbol, everywhere != nullptr,
                in_driver != nullptr, next != nullptr,
                everywhere == in_driver && next == in_driver);
    for (const int version : {3020, 7000, 12000, 13000, 13050}) {
      resolve(shared_name(symbol), version, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
      resolve(shared_name(symbol), version, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    }
  }
  return 0;
}
