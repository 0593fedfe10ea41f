// SPDX-License-Identifier: Apache-2.0
// Allocation and what can be asked about a pointer. Each call is one driver call; sizes of zero and
// null pointers are answered here, as NVIDIA's runtime does.

#include <cuda_runtime_api.h>

#include <cstring>
#include <iterator>

#include "tests/sim/cudart/state.h"

using namespace simcudart;

namespace {

// Hands the driver's out-parameter on only when it was written.
template <typename Work>
cudaError_t allocate(void** out, size_t bytes, Work work) {
  if (out == nullptr) return remember(cudaErrorInvalidValue);
  return in_context([&](const Driver& d) {
    CUdeviceptr address = 0;
    const CUresult result = bytes == 0 ? CUDA_SUCCESS : work(d, &address);
    if (result == CUDA_SUCCESS) *out = reinterpret_cast<void*>(address);
    return result;
  });
}

cudaError_t allocate_host(void** out, size_t bytes, unsigned flags) {
  if (out == nullptr) return remember(cudaErrorInvalidValue);
  return in_context([&](const Driver& d) {
    void* memory = nullptr;
    const CUresult result = bytes == 0 ? CUDA_SUCCESS : d.cuMemHostAlloc_(&memory, bytes, flags);
    if (result == CUDA_SUCCESS) *out = memory;
    return result;
  });
}

}  // namespace

cudaError_t cudaMalloc(void** out, size_t bytes) {
  return allocate(out, bytes, [&](const Driver& d, CUdeviceptr* address) {
    return d.cuMemAlloc_(address, bytes);
  });
}

cudaError_t cudaMallocManaged(void** out, size_t bytes, unsigned flags) {
  if (bytes == 0) return remember(cudaErrorInvalidValue);
  return allocate(out, bytes, [&](const Driver& d, CUdeviceptr* address) {
    return d.cuMemAllocManaged_(address, bytes, flags);
  });
}

cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise advice,
                          cudaMemLocation location) {
  const CUmemLocation where = driver_location(location);
  return in_context([&](const Driver& d) {
    return d.cuMemAdvise_(device_address(pointer), bytes, static_cast<CUmem_advise>(advice), where);
  });
}

cudaError_t cudaMallocPitch(void** out, size_t* pitch, size_t width, size_t height) {
  if (pitch == nullptr) return remember(cudaErrorInvalidValue);
  *pitch = 0;
  return allocate(out, width * height, [&](const Driver& d, CUdeviceptr* address) {
    return d.cuMemAllocPitch_(address, pitch, width, height, 4);
  });
}

cudaError_t cudaFree(void* pointer) {
  return in_context([&](const Driver& d) {
    return pointer == nullptr ? CUDA_SUCCESS : d.cuMemFree_(device_address(pointer));
  });
}

cudaError_t cudaMallocHost(void** out, size_t bytes) { return allocate_host(out, bytes, 0); }

cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned flags) {
  return allocate_host(out, bytes, flags);
}

cudaError_t cudaFreeHost(void* pointer) {
  return in_context([&](const Driver& d) {
    return pointer == nullptr ? CUDA_SUCCESS : d.cuMemFreeHost_(pointer);
  });
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
  return in_context([&](const Driver& d) { return d.cuMemHostRegister_(pointer, bytes, flags); });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return in_context([&](const Driver& d) { return d.cuMemHostUnregister_(pointer); });
}

cudaError_t cudaHostGetDevicePointer(void** out, void* pointer, unsigned flags) {
  return allocate(out, 1, [&](const Driver& d, CUdeviceptr* address) {
    return d.cuMemHostGetDevicePointer_(address, pointer, flags);
  });
}

cudaError_t cudaHostGetFlags(unsigned* flags, void* pointer) {
  return in_context([&](const Driver& d) { return d.cuMemHostGetFlags_(flags, pointer); });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  if (out == nullptr) return remember(cudaErrorInvalidValue);
  return in_context([&](const Driver& d) {
    unsigned type = 0;
    unsigned managed = 0;
    int device = cudaInvalidDeviceId;
    void* device_pointer = nullptr;
    void* host_pointer = nullptr;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void* values[] = {&type, &managed, &device, &device_pointer, &host_pointer};
    const CUresult result =
        d.cuPointerGetAttributes_(std::size(names), names, values, device_address(pointer));
    if (result != CUDA_SUCCESS) return result;
    *out = {};
    if (type == 0) {  // unknown to the driver: ordinary host memory
      out->type = cudaMemoryTypeUnregistered;
      out->device = cudaInvalidDeviceId;
      out->hostPointer = const_cast<void*>(pointer);
      return result;
    }
    out->type = managed != 0 ? cudaMemoryTypeManaged : static_cast<cudaMemoryType>(type);
    out->device = device;
    out->devicePointer = device_pointer;
    out->hostPointer = host_pointer;
    return result;
  });
}

// Has no form for the default stream of each thread.
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           size_t bytes) {
  CUcontext to_context = nullptr;
  CUcontext from_context = nullptr;
  cudaError_t status = primary_of(to_device, &to_context);
  if (status == cudaSuccess) status = primary_of(from_device, &from_context);
  if (status != cudaSuccess) return remember(status);
  return in_context([&](const Driver& d) {
    if (bytes == 0) return CUDA_SUCCESS;
    return d.legacy.cuMemcpyPeer_(device_address(to), to_context, device_address(from),
                                  from_context, bytes);
  });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  CUcontext to_context = nullptr;
  CUcontext from_context = nullptr;
  cudaError_t status = primary_of(to_device, &to_context);
  if (status == cudaSuccess) status = primary_of(from_device, &from_context);
  if (status != cudaSuccess) return remember(status);
  return in_context([&](const Driver& d) {
    if (bytes == 0) return CUDA_SUCCESS;
    return d.legacy.cuMemcpyPeerAsync_(device_address(to), to_context, device_address(from),
                                       from_context, bytes, stream);
  });
}

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle));

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  return in_context([&](const Driver& d) {
    return d.cuIpcGetMemHandle_(reinterpret_cast<CUipcMemHandle*>(handle), device_address(pointer));
  });
}

cudaError_t cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t handle, unsigned flags) {
  return allocate(out, 1, [&](const Driver& d, CUdeviceptr* address) {
    CUipcMemHandle copy;
    std::memcpy(&copy, &handle, sizeof copy);
    return d.cuIpcOpenMemHandle_(address, copy, flags);
  });
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  return in_context(
      [&](const Driver& d) { return d.cuIpcCloseMemHandle_(device_address(pointer)); });
}

static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle));

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return in_context([&](const Driver& d) {
    return d.cuIpcGetEventHandle_(reinterpret_cast<CUipcEventHandle*>(handle), event);
  });
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  return in_context([&](const Driver& d) {
    CUipcEventHandle copy;
    std::memcpy(&copy, &handle, sizeof copy);
    return d.cuIpcOpenEventHandle_(event, copy);
  });
}
