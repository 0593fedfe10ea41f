// SPDX-License-Identifier: Apache-2.0
// The half of the runtime that nvcc's generated host code talks to: registration of images and
// kernels, the stack of launch configurations behind <<<>>>, and look-up of kernels.

#include "tests/sim/cudart/module.h"

#include <cuda_runtime_api.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/sim/cudart/state.h"

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

struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, Kernel> kernels;  // by host stub
};

// Never destroyed: registration precedes static constructors, unregistration follows destructors.
Registry& registry() {
  static auto& instance = *new Registry;
  return instance;
}

CUresult load(Kernel& kernel) {
  const Driver& d = *driver();
  if (kernel.image->library == nullptr) {
    const CUresult result = d.cuLibraryLoadData_(&kernel.image->library, kernel.image->data,
                                                 nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (result != CUDA_SUCCESS) return result;
  }
  return d.cuLibraryGetKernel_(&kernel.handle, kernel.image->library, kernel.name.c_str());
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
  if (found == known.kernels.end()) return cudaErrorInvalidDeviceFunction;
  Kernel& kernel = found->second;
  const CUresult result = kernel.handle != nullptr ? CUDA_SUCCESS : load(kernel);
  if (result == CUDA_ERROR_NOT_FOUND) return cudaErrorInvalidDeviceFunction;
  *out = kernel.handle;
  return as_runtime(result);
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
