// SPDX-License-Identifier: Apache-2.0
// The half of the runtime that nvcc's generated host code talks to: registration of images, kernels
// and variables, the stack of launch configurations behind <<<>>>, and look-up of kernels.

#include "tests/sim/cudart/module.h"

#include <cuda_runtime_api.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tests/sim/cudart/state.h"
#include "tests/sim/include/simcuda/globals.h"

using namespace simcudart;

namespace {

struct Image {
  const void* data = nullptr;
  CUlibrary library = nullptr;
};

struct Kernel {
  Image* image;
  std::string name;  // mangled
  CUkernel handle = nullptr;
};

struct Variable {
  Image* image;
  std::string name;  // mangled
  size_t bytes;
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, Kernel> kernels;      // by host stub
  std::unordered_map<const void*, Variable> variables;  // by host variable
  std::unordered_set<CUkernel> handles;                 // what cudaLibraryGetKernel gave
};

// Never destroyed: registration precedes static constructors, unregistration follows destructors.
Registry& registry() {
  static auto& instance = *new Registry;
  return instance;
}

// The simulated driver cannot read compressed images: it is told what they have. NVIDIA's driver
// has no such function, and reads them.
void tell_variables(const Image& image) {
  static const auto tell =
      reinterpret_cast<decltype(&simcuda_add_global)>(find_in_driver("simcuda_add_global"));
  if (tell == nullptr) return;
  for (const auto& [host, variable] : registry().variables) {
    if (variable.image == &image) tell(image.library, variable.name.c_str(), variable.bytes);
  }
}

// Caller holds the registry's mutex.
CUresult load(Image& image) {
  if (image.library != nullptr) return CUDA_SUCCESS;
  const CUresult result = driver()->cuLibraryLoadData_(&image.library, image.data, nullptr, nullptr,
                                                       0, nullptr, nullptr, 0);
  if (result == CUDA_SUCCESS) tell_variables(image);
  return result;
}

CUresult load(Kernel& kernel) {
  const CUresult result = load(*kernel.image);
  if (result != CUDA_SUCCESS) return result;
  return driver()->cuLibraryGetKernel_(&kernel.handle, kernel.image->library, kernel.name.c_str());
}

struct LaunchConfiguration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  cudaStream_t stream;
};

thread_local std::vector<LaunchConfiguration> t_configurations;

// What nvcc emits for each translation unit (its fatbinary wrapper).
struct Wrapper {
  int magic;
  int version;
  const void* data;
  void* file;
};

}  // namespace

namespace simcudart {

cudaError_t find_kernel(const void* host_stub, CUkernel* out) {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  const auto found = known.kernels.find(host_stub);
  if (found == known.kernels.end()) {
    const auto handle = reinterpret_cast<CUkernel>(const_cast<void*>(host_stub));
    if (!known.handles.contains(handle)) return cudaErrorInvalidDeviceFunction;
    *out = handle;
    return cudaSuccess;
  }
  Kernel& kernel = found->second;
  const CUresult result = kernel.handle != nullptr ? CUDA_SUCCESS : load(kernel);
  if (result == CUDA_ERROR_NOT_FOUND) return cudaErrorInvalidDeviceFunction;
  *out = kernel.handle;
  return as_runtime(result);
}

void accept_kernel(CUkernel handle) {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  known.handles.insert(handle);
}

cudaError_t find_variable(const void* host_variable, CUdeviceptr* out, size_t* bytes) {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  const auto found = known.variables.find(host_variable);
  if (found == known.variables.end()) return cudaErrorInvalidSymbol;
  const Variable& variable = found->second;
  CUresult result = load(*variable.image);
  if (result == CUDA_SUCCESS) {
    result =
        driver()->cuLibraryGetGlobal_(out, bytes, variable.image->library, variable.name.c_str());
  }
  return result == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : as_runtime(result);
}

}  // namespace simcudart

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  auto* image = new Image;
  image->data = static_cast<const Wrapper*>(wrapper)->data;
  return reinterpret_cast<void**>(image);
}

void __cudaRegisterFatBinaryEnd(void** image) {}

void __cudaUnregisterFatBinary(void** handle) {
  auto* image = reinterpret_cast<Image*>(handle);
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.kernels, [&](const auto& entry) { return entry.second.image == image; });
  std::erase_if(known.variables, [&](const auto& entry) { return entry.second.image == image; });
  // The library stays with the driver: at exit no call may reach it any more.
  delete image;
}

void __cudaRegisterFunction(void** handle, const char* host_stub, char* device_stub,
                            const char* name, int thread_limit, uint3* thread, uint3* block,
                            dim3* block_dim, dim3* grid_dim, int* warp_size) {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  known.kernels.insert_or_assign(host_stub, Kernel{reinterpret_cast<Image*>(handle), name});
}

void __cudaRegisterVar(void** handle, char* host_variable, char* device_address, const char* name,
                       int external, size_t bytes, int constant, int global) {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  known.variables.insert_or_assign(host_variable,
                                   Variable{reinterpret_cast<Image*>(handle), name, bytes});
}

char __cudaInitModule(void** image) { return 1; }

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream) {
  t_configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       void* stream) {
  if (t_configurations.empty()) return remember(cudaErrorInvalidConfiguration);
  const LaunchConfiguration& top = t_configurations.back();
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  t_configurations.pop_back();
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* host_stub) {
  cudaError_t status = bind_context();
  CUkernel kernel = nullptr;
  if (status == cudaSuccess) status = find_kernel(host_stub, &kernel);
  if (status == cudaSuccess) *out = kernel;
  return remember(status);
}

}  // extern "C"

cudaError_t cudaGetSymbolAddress(void** out, const void* symbol) {
  if (out == nullptr) return remember(cudaErrorInvalidValue);
  cudaError_t status = bind_context();
  CUdeviceptr address = 0;
  size_t bytes = 0;
  if (status == cudaSuccess) status = find_variable(symbol, &address, &bytes);
  if (status == cudaSuccess) *out = reinterpret_cast<void*>(address);
  return remember(status);
}

cudaError_t cudaGetSymbolSize(size_t* out, const void* symbol) {
  if (out == nullptr) return remember(cudaErrorInvalidValue);
  cudaError_t status = bind_context();
  CUdeviceptr address = 0;
  size_t bytes = 0;
  if (status == cudaSuccess) status = find_variable(symbol, &address, &bytes);
  if (status == cudaSuccess) *out = bytes;
  return remember(status);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* host_stub) {
  if (out == nullptr) return remember(cudaErrorInvalidValue);
  cudaKernel_t kernel = nullptr;
  if (const cudaError_t status = __cudaGetKernel(&kernel, host_stub); status != cudaSuccess) {
    return status;
  }
  return in_context([&](const Driver& d) {
    const auto ask = [&](int* value, CUfunction_attribute which) {
      return d.cuKernelGetAttribute_(value, which, kernel, current_device());
    };
    *out = {};
    const CUresult result = ask(&out->maxThreadsPerBlock, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    return result != CUDA_SUCCESS ? result : ask(&out->numRegs, CU_FUNC_ATTRIBUTE_NUM_REGS);
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* host_stub, int block_size, size_t shared_bytes, unsigned flags) {
  cudaKernel_t kernel = nullptr;
  if (const cudaError_t status = __cudaGetKernel(&kernel, host_stub); status != cudaSuccess) {
    return status;
  }
  return in_context([&](const Driver& d) {
    return d.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_(
        blocks, reinterpret_cast<CUfunction>(kernel), block_size, shared_bytes, flags);
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* host_stub,
                                                          int block_size, size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host_stub, block_size,
                                                                shared_bytes, cudaOccupancyDefault);
}
