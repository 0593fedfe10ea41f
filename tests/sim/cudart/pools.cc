// SPDX-License-Identifier: Apache-2.0
// Memory pools of the driver, and what graphs keep. Attributes have the driver's numbers.

#include <cuda_runtime_api.h>

#include "tests/sim/cudart/state.h"

using namespace simcudart;

static_assert(sizeof(cudaMemAccessDesc) == sizeof(CUmemAccessDesc));

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return without_context(
      [&](const Driver& d) { return d.cuDeviceGetDefaultMemPool_(pool, device); });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return without_context([&](const Driver& d) {
    return d.cuMemPoolGetAttribute_(pool, static_cast<CUmemPool_attribute>(attribute), value);
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return without_context([&](const Driver& d) {
    return d.cuMemPoolSetAttribute_(pool, static_cast<CUmemPool_attribute>(attribute), value);
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* list, size_t count) {
  return without_context([&](const Driver& d) {
    return d.cuMemPoolSetAccess_(pool, reinterpret_cast<const CUmemAccessDesc*>(list), count);
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes_to_keep) {
  return without_context([&](const Driver& d) { return d.cuMemPoolTrimTo_(pool, bytes_to_keep); });
}

cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute,
                                           void* value) {
  return without_context([&](const Driver& d) {
    return d.cuDeviceGetGraphMemAttribute_(device, static_cast<CUgraphMem_attribute>(attribute),
                                           value);
  });
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute,
                                           void* value) {
  return without_context([&](const Driver& d) {
    return d.cuDeviceSetGraphMemAttribute_(device, static_cast<CUgraphMem_attribute>(attribute),
                                           value);
  });
}

static_assert(sizeof(cudaMemPoolProps) == sizeof(CUmemPoolProps));

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return without_context([&](const Driver& d) { return d.cuDeviceGetMemPool_(pool, device); });
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return without_context([&](const Driver& d) { return d.cuDeviceSetMemPool_(device, pool); });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return without_context([&](const Driver& d) {
    return d.cuMemPoolCreate_(pool, reinterpret_cast<const CUmemPoolProps*>(properties));
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return without_context([&](const Driver& d) { return d.cuMemPoolDestroy_(pool); });
}
