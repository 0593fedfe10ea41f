// SPDX-License-Identifier: Apache-2.0
// Devices: number, properties, limits of memory, peers, synchronisation, reset, versions.

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include "tests/sim/cudart/state.h"

using namespace simcudart;

namespace {

int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  return driver()->cuDeviceGetAttribute_(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

void fill_limits(cudaDeviceProp& prop, CUdevice device) {
  prop.sharedMemPerBlock =
      static_cast<size_t>(attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
  prop.regsPerBlock = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  prop.warpSize = attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  prop.maxThreadsPerBlock = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  prop.maxThreadsPerMultiProcessor =
      attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  prop.maxThreadsDim[0] = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  prop.maxThreadsDim[1] = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  prop.maxThreadsDim[2] = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  prop.maxGridSize[0] = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  prop.maxGridSize[1] = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  prop.maxGridSize[2] = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
}

void fill_memory_abilities(cudaDeviceProp& prop, CUdevice device) {
  prop.textureAlignment =
      static_cast<size_t>(attribute(device, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT));
  prop.unifiedAddressing = attribute(device, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
  prop.canMapHostMemory = attribute(device, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  prop.managedMemory = attribute(device, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
  prop.concurrentManagedAccess = attribute(device, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
  prop.memoryPoolsSupported = attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  prop.gpuDirectRDMASupported = attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
  prop.l2CacheSize = attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  return without_context([&](const Driver& d) { return d.cuDeviceGetCount_(count); });
}

cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return remember(cudaErrorInvalidValue);
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return remember(set_device(device)); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  if (prop == nullptr) return remember(cudaErrorInvalidValue);
  *prop = {};
  return without_context([&](const Driver& d) {
    CUresult result = d.cuDeviceGetName_(prop->name, sizeof prop->name, device);
    if (result != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
    result = d.cuDeviceTotalMem_(&prop->totalGlobalMem, device);
    if (result != CUDA_SUCCESS) return result;
    result = d.cuDeviceGetUuid_(&prop->uuid, device);
    prop->major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    prop->minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    prop->multiProcessorCount = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    prop->concurrentKernels = attribute(device, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS);
    prop->asyncEngineCount = attribute(device, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
    prop->pciBusID = attribute(device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
    prop->pciDeviceID = attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
    fill_limits(*prop, device);
    fill_memory_abilities(*prop, device);
    return result;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return without_context([&](const Driver& d) {
    return d.cuDeviceGetAttribute_(value, static_cast<CUdevice_attribute>(attr), device);
  });
}

cudaError_t cudaDeviceSynchronize() {
  return in_context([](const Driver& d) { return d.cuCtxSynchronize_(); });
}

cudaError_t cudaDeviceReset() { return remember(reset_device()); }

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return in_context(
      [&](const Driver& d) { return d.cuCtxGetStreamPriorityRange_(least, greatest); });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return in_context([&](const Driver& d) { return d.cuMemGetInfo_(free_bytes, total_bytes); });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return without_context(
      [&](const Driver& d) { return d.cuDeviceCanAccessPeer_(can, device, peer); });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  CUcontext context = nullptr;
  if (const cudaError_t status = primary_of(peer, &context); status != cudaSuccess) {
    return remember(status);
  }
  return in_context([&](const Driver& d) { return d.cuCtxEnablePeerAccess_(context, flags); });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  CUcontext context = nullptr;
  if (const cudaError_t status = primary_of(peer, &context); status != cudaSuccess) {
    return remember(status);
  }
  return in_context([&](const Driver& d) { return d.cuCtxDisablePeerAccess_(context); });
}

cudaError_t cudaDeviceGetPCIBusId(char* out, int length, int device) {
  return without_context(
      [&](const Driver& d) { return d.cuDeviceGetPCIBusId_(out, length, device); });
}

cudaError_t cudaProfilerStart() {
  return in_context([](const Driver& d) { return d.cuProfilerStart_(); });
}

cudaError_t cudaProfilerStop() {
  return in_context([](const Driver& d) { return d.cuProfilerStop_(); });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* bus) {
  return without_context([&](const Driver& d) { return d.cuDeviceGetByPCIBusId_(device, bus); });
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return in_context(
      [&](const Driver& d) { return d.cuCtxGetLimit_(value, static_cast<CUlimit>(limit)); });
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return in_context(
      [&](const Driver& d) { return d.cuCtxSetLimit_(static_cast<CUlimit>(limit), value); });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return remember(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return remember(cudaErrorInvalidValue);
  if (driver() == nullptr) {
    *version = 0;  // as documented for a machine without a driver
    return cudaSuccess;
  }
  return remember(as_runtime(driver()->cuDriverGetVersion_(version)));
}
