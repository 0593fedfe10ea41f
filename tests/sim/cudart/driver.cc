// SPDX-License-Identifier: Apache-2.0
// Loads the driver once, at the first call that needs it, in the order NVIDIA's runtime does it.

#include "tests/sim/cudart/driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <mutex>

#include "tests/sim/include/simcuda/runtime_table.h"

namespace simcudart {
namespace {

Driver g_driver;
void* g_library = nullptr;
CUresult g_status = CUDA_ERROR_NOT_FOUND;
std::once_flag g_once;

class Resolver {
 public:
  explicit Resolver(PFN_cuGetProcAddress_v12000 query) : query_(query) {}

  template <typename Function>
  void find(Function* out, const char* name, int version, cuuint64_t flags) {
    void* address = nullptr;
    CUdriverProcAddressQueryResult found{};
    const CUresult result = query_(name, &address, version, flags, &found);
    if (result != CUDA_SUCCESS || address == nullptr) {
      std::fprintf(stderr, "simulated cudart: the driver has no %s for version %d, flags %llu\n",
                   name, version, static_cast<unsigned long long>(flags));
      complete_ = false;
    }
    *out = reinterpret_cast<Function>(address);
  }

  bool complete() const { return complete_; }

 private:
  PFN_cuGetProcAddress_v12000 query_;
  bool complete_ = true;
};

void load() {
  g_library = dlopen("libcuda.so.1", RTLD_NOW);
  if (g_library == nullptr) return;
  auto query =
      reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(g_library, "cuGetProcAddress_v2"));
  if (query == nullptr) return;

  // NVIDIA's runtime opens with this probe; whatever stands in between has to survive it.
  void* nothing = nullptr;
  query("", &nothing, 0, CU_GET_PROC_ADDRESS_DEFAULT, nullptr);

  Resolver resolver(query);
#define SIMCUDART_FIND(name, version) \
  resolver.find(&g_driver.name##_, #name, version, CU_GET_PROC_ADDRESS_DEFAULT);
  SIMCUDART_CALLS(SIMCUDART_FIND)
#undef SIMCUDART_FIND
#define SIMCUDART_FIND(name, version, per_thread_version)                               \
  resolver.find(&g_driver.legacy.name##_, #name, version, CU_GET_PROC_ADDRESS_DEFAULT); \
  resolver.find(&g_driver.per_thread.name##_, #name, per_thread_version,                \
                CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  SIMCUDART_STREAM_CALLS(SIMCUDART_FIND)
#undef SIMCUDART_FIND
  if (!resolver.complete()) return;
  const void* table = nullptr;
  if (g_driver.cuGetExportTable_(&table, &simcuda::kRuntimeTable) != CUDA_SUCCESS) return;
  g_driver.make_primary = static_cast<const simcuda::RuntimeTable*>(table)->make_primary;
  g_status = g_driver.cuInit_(0);
}

}  // namespace

const Driver* driver() {
  std::call_once(g_once, load);
  return g_status == CUDA_ERROR_NOT_FOUND ? nullptr : &g_driver;
}

CUresult driver_status() { return g_status; }

void* find_in_driver(const char* symbol) {
  return driver() == nullptr ? nullptr : dlsym(g_library, symbol);
}

}  // namespace simcudart
