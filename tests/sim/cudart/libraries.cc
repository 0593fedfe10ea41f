// SPDX-License-Identifier: Apache-2.0
// Libraries that the program loads itself, and attributes of kernels.

#include <cuda_runtime_api.h>

#include "tests/sim/cudart/module.h"
#include "tests/sim/cudart/state.h"

using namespace simcudart;

namespace {

cudaError_t set_attribute(cudaKernel_t kernel, cudaFuncAttribute attribute, int value, int device) {
  return without_context([&](const Driver& d) {
    return d.cuKernelSetAttribute_(static_cast<CUfunction_attribute>(attribute), value, kernel,
                                   device);
  });
}

}  // namespace

#if CUDART_VERSION >= 12080  // earlier runtimes have no libraries
namespace {

// Hands the driver's out-parameter on only when it was written.
template <typename Work>
cudaError_t find_memory(void** out, Work work) {
  return in_context([&](const Driver& d) {
    CUdeviceptr address = 0;
    const CUresult result = work(d, &address);
    if (result == CUDA_SUCCESS && out != nullptr) *out = reinterpret_cast<void*>(address);
    return result;
  });
}

}  // namespace

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption* jit,
                                void** jit_values, unsigned jit_count, cudaLibraryOption* options,
                                void** values, unsigned count) {
  return without_context([&](const Driver& d) {
    return d.cuLibraryLoadData_(library, code, reinterpret_cast<CUjit_option*>(jit), jit_values,
                                jit_count, reinterpret_cast<CUlibraryOption*>(options), values,
                                count);
  });
}

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* library, const char* file, cudaJitOption* jit,
                                    void** jit_values, unsigned jit_count,
                                    cudaLibraryOption* options, void** values, unsigned count) {
  return without_context([&](const Driver& d) {
    return d.cuLibraryLoadFromFile_(library, file, reinterpret_cast<CUjit_option*>(jit), jit_values,
                                    jit_count, reinterpret_cast<CUlibraryOption*>(options), values,
                                    count);
  });
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  return without_context([&](const Driver& d) { return d.cuLibraryUnload_(library); });
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  return in_context([&](const Driver& d) {
    const CUresult result = d.cuLibraryGetKernel_(kernel, library, name);
    if (result == CUDA_SUCCESS) accept_kernel(*kernel);
    return result;
  });
}

cudaError_t cudaLibraryGetKernelCount(unsigned* count, cudaLibrary_t library) {
  return in_context([&](const Driver& d) { return d.cuLibraryGetKernelCount_(count, library); });
}

cudaError_t cudaLibraryGetGlobal(void** out, size_t* bytes, cudaLibrary_t library,
                                 const char* name) {
  return find_memory(out, [&](const Driver& d, CUdeviceptr* address) {
    return d.cuLibraryGetGlobal_(address, bytes, library, name);
  });
}

cudaError_t cudaLibraryGetManaged(void** out, size_t* bytes, cudaLibrary_t library,
                                  const char* name) {
  return find_memory(out, [&](const Driver& d, CUdeviceptr* address) {
    return d.cuLibraryGetManaged_(address, bytes, library, name);
  });
}

cudaError_t cudaLibraryGetUnifiedFunction(void** out, cudaLibrary_t library, const char* name) {
  return in_context(
      [&](const Driver& d) { return d.cuLibraryGetUnifiedFunction_(out, library, name); });
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute,
                                            int value, int device) {
  return set_attribute(kernel, attribute, value, device);
}
#endif

cudaError_t cudaFuncSetAttribute(const void* host_stub, cudaFuncAttribute attribute, int value) {
  cudaError_t status = bind_context();
  CUkernel kernel = nullptr;
  if (status == cudaSuccess) status = find_kernel(host_stub, &kernel);
  if (status != cudaSuccess) return remember(status);
  return set_attribute(kernel, attribute, value, current_device());
}
