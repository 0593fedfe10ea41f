// SPDX-License-Identifier: Apache-2.0
// cudaMalloc and cudaFree of a program with a shared CUDA runtime, preloaded: another allocator
// serves them. Such allocators know the stream of a block; here it is the stream that the thread
// made last, or the legacy one. At exit stderr has "held bytes N".
#include "instead.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <mutex>

namespace {

thread_local CUstream own_stream = nullptr;
std::mutex one_at_a_time;

template <typename Function>
Function* real(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// The runtime makes its context current in a thread that calls it.
void use_runtime() {
  static thread_local const cudaError_t done = real(&cudaFree, "cudaFree")(nullptr);
  (void)done;
}

cudaError_t answer(CUresult code) {
  if (code == CUDA_SUCCESS) return cudaSuccess;
  return code == CUDA_ERROR_OUT_OF_MEMORY ? cudaErrorMemoryAllocation : cudaErrorUnknown;
}

struct AtExit {
  ~AtExit() {
    std::fprintf(stderr, "held bytes %llu\n",
                 static_cast<unsigned long long>(instead::held_peak()));
  }
} at_exit;

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) {
  use_runtime();
  const std::lock_guard lock(one_at_a_time);
  CUdeviceptr address = 0;
  const CUresult code = instead::allocate(bytes, own_stream, &address);
  *out = reinterpret_cast<void*>(address);
  return answer(code);
}

cudaError_t cudaFree(void* block) {
  use_runtime();
  if (block == nullptr) return cudaSuccess;
  const std::lock_guard lock(one_at_a_time);
  return answer(instead::release(reinterpret_cast<CUdeviceptr>(block), own_stream));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  const cudaError_t code =
      real(&cudaStreamCreateWithFlags, "cudaStreamCreateWithFlags")(out, flags);
  if (code == cudaSuccess) own_stream = *out;
  return code;
}
}
