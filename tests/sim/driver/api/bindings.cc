// SPDX-License-Identifier: Apache-2.0
//
// Multicast objects and logical endpoints: made, bound to memory and, the latter, ended. Nothing
// goes through a multicast object; a copy may name an endpoint.
#include "api/bindings.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "api/api.h"
#include "memory/allocation.h"
#include "memory/vmm.h"

using namespace simcuda;

namespace {

struct Bound {
  std::vector<TakenRef> taken{};
  std::map<uint64_t, Allocation> memory{};  // bound by address, by the place it is bound at
};

// Endpoints by their id, and multicast objects by handles above all ids.
struct Bindings {
  std::mutex mutex;
  std::map<uint64_t, Bound> all;
  uint64_t next_handle = uint64_t{1} << 40;
  CUlogicalEndpointId next_id = 1;
};

Bindings& bindings() {
  static Bindings& only = *new Bindings;
  return only;
}

// The driver takes memory for it, whatever it is.
CUresult take_into(Call id, Bound& bound) {
  return in_context([&](Context& context) {
    TakenRef taken;
    const CUresult code = take_for(id, context, &taken);
    if (taken != nullptr) bound.taken.push_back(std::move(taken));
    return code;
  });
}

CUresult make_bound(Call id, uint64_t key) {
  Bound made;
  const CUresult code = take_into(id, made);
  if (code != CUDA_SUCCESS) return code;
  const std::lock_guard lock(bindings().mutex);
  return bindings().all.try_emplace(key, std::move(made)).second ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_INVALID_VALUE;
}

template <class Work>
CUresult with_bound(uint64_t key, Work&& work) {
  const std::lock_guard lock(bindings().mutex);
  const auto found = bindings().all.find(key);
  return found == bindings().all.end() ? CUDA_ERROR_INVALID_VALUE : work(found->second);
}

// Only memory of cuMemCreate or cuMemAllocAsync can be bound (cuda.h).
CUresult bind_address(Call id, uint64_t key, uint64_t place, CUdeviceptr address, size_t bytes) {
  return with_bound(key, [&](Bound& bound) {
    auto memory = find_allocation(address);
    const bool fits = memory && memory->contains(address, bytes) &&
                      (memory->kind == MemoryKind::kMapped || memory->kind == MemoryKind::kPool);
    if (!fits || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const CUresult code = take_into(id, bound);
    if (code != CUDA_SUCCESS) return code;
    memory->bytes = bytes;
    memory->base = address;
    bound.memory[place] = *memory;
    return CUDA_SUCCESS;
  });
}

CUresult bind_handle(Call id, uint64_t key, CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp properties{};
  const CUresult known = physical_properties(handle, &properties);
  if (known != CUDA_SUCCESS) return known;
  return with_bound(key, [&](Bound& bound) { return take_into(id, bound); });
}

}  // namespace

namespace simcuda {

CUdeviceptr address_behind(CUlogicalEndpointId endpoint, cuuint64_t offset) {
  CUdeviceptr address = 0;
  with_bound(endpoint, [&](const Bound& bound) {
    for (const auto& [place, memory] : bound.memory) {
      if (offset >= place && offset - place < memory.bytes) address = memory.base + offset - place;
    }
    return CUDA_SUCCESS;
  });
  return address;
}

}  // namespace simcuda

extern "C" {

CUresult cuMulticastCreate(CUmemGenericAllocationHandle* mcHandle,
                           const CUmulticastObjectProp* prop) {
  return call(Call::cuMulticastCreate, [&] {
    if (mcHandle == nullptr || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
    uint64_t handle = 0;
    {
      const std::lock_guard lock(bindings().mutex);
      handle = bindings().next_handle++;
    }
    const CUresult code = make_bound(Call::cuMulticastCreate, handle);
    if (code == CUDA_SUCCESS) *mcHandle = handle;
    return code;
  });
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags) {
  return call(Call::cuMulticastBindMem,
              [&] { return bind_handle(Call::cuMulticastBindMem, mcHandle, memHandle); });
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                               CUmemGenericAllocationHandle memHandle, size_t memOffset,
                               size_t size, unsigned long long flags) {
  return call(Call::cuMulticastBindMem_v2,
              [&] { return bind_handle(Call::cuMulticastBindMem_v2, mcHandle, memHandle); });
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                             CUdeviceptr memptr, size_t size, unsigned long long flags) {
  return call(Call::cuMulticastBindAddr, [&] {
    return bind_address(Call::cuMulticastBindAddr, mcHandle, mcOffset, memptr, size);
  });
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                                size_t mcOffset, CUdeviceptr memptr, size_t size,
                                unsigned long long flags) {
  return call(Call::cuMulticastBindAddr_v2, [&] {
    return bind_address(Call::cuMulticastBindAddr_v2, mcHandle, mcOffset, memptr, size);
  });
}

CUresult cuLogicalEndpointIdReserve(CUlogicalEndpointId* baseLeId, cuuint32_t count) {
  return call(Call::cuLogicalEndpointIdReserve, [&] {
    if (baseLeId == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(bindings().mutex);
    *baseLeId = bindings().next_id;
    bindings().next_id += count;
    return CUDA_SUCCESS;
  });
}

CUresult cuLogicalEndpointCreate(CUlogicalEndpointId leId, const CUlogicalEndpointProp* prop) {
  return call(Call::cuLogicalEndpointCreate, [&] {
    return prop == nullptr ? CUDA_ERROR_INVALID_VALUE
                           : make_bound(Call::cuLogicalEndpointCreate, leId);
  });
}

CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId leId, CUdevice dev, cuuint64_t offset,
                                   void* ptr, cuuint64_t size, unsigned long long flags) {
  return call(Call::cuLogicalEndpointBindAddr, [&] {
    return bind_address(Call::cuLogicalEndpointBindAddr, leId, offset,
                        reinterpret_cast<CUdeviceptr>(ptr), size);
  });
}

CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId leId, CUdevice dev, cuuint64_t offset,
                                  CUmemGenericAllocationHandle memHandle, cuuint64_t memOffset,
                                  cuuint64_t size, unsigned long long flags) {
  return call(Call::cuLogicalEndpointBindMem,
              [&] { return bind_handle(Call::cuLogicalEndpointBindMem, leId, memHandle); });
}

CUresult cuLogicalEndpointDestroy(CUlogicalEndpointId leId) {
  return call(Call::cuLogicalEndpointDestroy, [&] {
    const std::lock_guard lock(bindings().mutex);
    return bindings().all.erase(leId) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // extern "C"
