// SPDX-License-Identifier: Apache-2.0
//
// Memory that graphs allocate by themselves: none, as no graph has a node that does.
#include "api/api.h"
#include "memory/device.h"

using namespace simcuda;

namespace {

bool known(CUgraphMem_attribute attribute) {
  return attribute >= CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT &&
         attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
}

bool is_peak(CUgraphMem_attribute attribute) {
  return attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
         attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
}

}  // namespace

extern "C" {

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return call(Call::cuDeviceGetGraphMemAttribute, [&] {
    if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (value == nullptr || !known(attr)) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<cuuint64_t*>(value) = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return call(Call::cuDeviceSetGraphMemAttribute, [&] {
    if (find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    // A peak can be set back, to what is there now, and nothing else.
    const bool fine = value != nullptr && is_peak(attr) && *static_cast<cuuint64_t*>(value) == 0;
    return fine ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return call(Call::cuDeviceGraphMemTrim, [&] {
    return find_device(device) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
  });
}

}  // extern "C"
