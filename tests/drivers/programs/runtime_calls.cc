// SPDX-License-Identifier: Apache-2.0
// Calls of the CUDA runtime on a machine without a GPU: the results, and what they leave as the
// last error. The first argument says which of them is made first, since the first one looks for
// the driver. Then the entry points of the names in the file that is the second.

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace {

struct Call {
  const char* name;
  std::function<cudaError_t()> make;
};

void* block = nullptr;
void* host = nullptr;
int number = -1;
size_t free_bytes = 1, total_bytes = 2;
char bytes[64] = {};
cudaStream_t stream = nullptr;
cudaEvent_t event = nullptr;

const std::vector<Call> kCalls = {
    {"cudaGetDeviceCount", [] { return cudaGetDeviceCount(&number); }},
    {"cudaMalloc", [] { return cudaMalloc(&block, 1000); }},
    {"cudaMalloc of 0", [] { return cudaMalloc(&block, 0); }},
    {"cudaMalloc to nowhere", [] { return cudaMalloc(nullptr, 1000); }},
    {"cudaFree of 0", [] { return cudaFree(nullptr); }},
    {"cudaFree of what is none", [] { return cudaFree(bytes); }},
    {"cudaMemGetInfo", [] { return cudaMemGetInfo(&free_bytes, &total_bytes); }},
    {"cudaMallocHost", [] { return cudaMallocHost(&host, 1000); }},
    {"cudaFreeHost of 0", [] { return cudaFreeHost(nullptr); }},
    {"cudaHostAlloc", [] { return cudaHostAlloc(&host, 1000, cudaHostAllocMapped); }},
    {"cudaHostRegister", [] { return cudaHostRegister(bytes, sizeof bytes, 0); }},
    {"cudaMallocManaged", [] { return cudaMallocManaged(&block, 1000); }},
    {"cudaMallocPitch", [] { return cudaMallocPitch(&block, &free_bytes, 100, 10); }},
    {"cudaMallocAsync", [] { return cudaMallocAsync(&block, 1000, nullptr); }},
    {"cudaFreeAsync", [] { return cudaFreeAsync(bytes, nullptr); }},
    {"cudaMemcpy", [] { return cudaMemcpy(bytes, bytes + 32, 32, cudaMemcpyDefault); }},
    {"cudaMemset", [] { return cudaMemset(bytes, 0, 32); }},
    {"cudaDeviceSynchronize", [] { return cudaDeviceSynchronize(); }},
    {"cudaSetDevice", [] { return cudaSetDevice(0); }},
    {"cudaGetDevice", [] { return cudaGetDevice(&number); }},
    {"cudaStreamCreate", [] { return cudaStreamCreate(&stream); }},
    {"cudaStreamSynchronize", [] { return cudaStreamSynchronize(nullptr); }},
    {"cudaEventCreate", [] { return cudaEventCreate(&event); }},
    {"cudaDriverGetVersion", [] { return cudaDriverGetVersion(&number); }},
    {"cudaRuntimeGetVersion", [] { return cudaRuntimeGetVersion(&number); }},
    {"cudaPointerGetAttributes",
     [] {
       cudaPointerAttributes attributes{};
       return cudaPointerGetAttributes(&attributes, bytes);
     }},
    {"cudaIpcGetMemHandle",
     [] {
       cudaIpcMemHandle_t handle{};
       return cudaIpcGetMemHandle(&handle, bytes);
     }},
    {"cudaDeviceReset", [] { return cudaDeviceReset(); }},
};

void tell(const Call& call) {
  const cudaError_t result = call.make();
  const char* last = cudaGetErrorName(cudaPeekAtLastError());
  std::printf("%s: %s, last %s, then %s; %d %zu %zu %d %d\n", call.name, cudaGetErrorName(result),
              last, cudaGetErrorName(cudaGetLastError()), number, free_bytes, total_bytes,
              block != nullptr, host != nullptr);
}

void tell_entry_point(const char* route, const std::string& name, unsigned version,
                      unsigned long long flags, cudaError_t result, int found,
                      const void* function) {
  Dl_info info;
  std::printf("%s %s %u %llu %d/%d ", route, name.c_str(), version, flags, result, found);
  if (function == nullptr || dladdr(function, &info) == 0) {
    std::printf("-\n");
  } else {
    const char* slash = std::strrchr(info.dli_fname, '/');
    std::printf(
        "%s+%zx\n", slash == nullptr ? info.dli_fname : slash + 1,
        reinterpret_cast<uintptr_t>(function) - reinterpret_cast<uintptr_t>(info.dli_fbase));
  }
}

void tell_entry_points(const std::string& name) {
  for (const unsigned long long flags : {0, 1, 2}) {
    void* function = nullptr;
#if CUDART_VERSION < 12000
    const cudaError_t result = cudaGetDriverEntryPoint(name.c_str(), &function, flags);
    tell_entry_point("cudaGetDriverEntryPoint", name, 0, flags, result, 0, function);
#elif CUDART_VERSION < 13000
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t result = cudaGetDriverEntryPoint(name.c_str(), &function, flags, &found);
    tell_entry_point("cudaGetDriverEntryPoint", name, 0, flags, result, found, function);
#endif
#if CUDART_VERSION >= 12050
    for (const unsigned version : {3020U, 7000U, 11030U, 12000U, 13000U}) {
      cudaDriverEntryPointQueryResult status{};
      const cudaError_t asked =
          cudaGetDriverEntryPointByVersion(name.c_str(), &function, version, flags, &status);
      tell_entry_point("cudaGetDriverEntryPointByVersion", name, version, flags, asked, status,
                       function);
    }
#endif
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::printf("%zu\n", kCalls.size());
    return 0;
  }
  tell(kCalls[static_cast<size_t>(std::atoi(argv[1]))]);
  for (const Call& call : kCalls) tell(call);
  std::ifstream names(argv[2]);
  std::string name;
  while (names >> name) tell_entry_points(name);
  return 0;
}
