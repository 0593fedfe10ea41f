// SPDX-License-Identifier: Apache-2.0
//
// What the driver says about an address, and what it is told.
#include <mutex>
#include <unordered_set>

#include "api/api.h"
#include "memory/allocation.h"
#include "memory/device.h"

using namespace simcuda;

namespace {

template <class T>
CUresult put(void* data, T value) {
  *static_cast<T*>(data) = value;
  return CUDA_SUCCESS;
}

// The allocations whose synchronous memory operations always synchronise. Work here does so anyway,
// so that it is only remembered. An id is never used again.
class SyncMemops {
 public:
  void set(uint64_t id, bool on) {
    const std::lock_guard lock(mutex_);
    on ? void(ids_.insert(id)) : void(ids_.erase(id));
  }
  bool get(uint64_t id) {
    const std::lock_guard lock(mutex_);
    return ids_.contains(id);
  }

 private:
  std::mutex mutex_;
  std::unordered_set<uint64_t> ids_;
};

SyncMemops& sync_memops() {
  static SyncMemops& all = *new SyncMemops;
  return all;
}

// Asking for them says that another device will access the memory, so that it is synchronised from
// then on (cuda.h).
CUresult put_tokens(void* data, const Allocation& found) {
  if (found.kind != MemoryKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  sync_memops().set(found.id, true);
  return put<CUDA_POINTER_ATTRIBUTE_P2P_TOKENS>(
      data, {.p2pToken = found.id, .vaSpaceToken = static_cast<unsigned>(found.device) + 1});
}

CUmemorytype type_of(MemoryKind kind) {
  return is_host(kind) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

// Where the memory lies: the units of the device, or as much of the host, that hold the allocation.
// What the driver tells of registered and of stream-ordered memory is not known.
Allocation mapping_of(const Allocation& found) {
  Allocation mapping = found;
  if (found.kind == MemoryKind::kRegistered || found.kind == MemoryKind::kPool) return mapping;
  constexpr uint64_t kUnit = Device::kUnitBytes;
  mapping.base = found.base / kUnit * kUnit;
  mapping.bytes = (found.base + found.bytes - mapping.base + kUnit - 1) / kUnit * kUnit;
  return mapping;
}

CUresult put_device_pointer(void* data, CUdeviceptr ptr) {
  CUresult code = CUDA_SUCCESS;
  const bool usable = usable_context(&code) != nullptr;
  put(data, usable ? ptr : 0);
  return code;
}

// Where it fails, it may have written 0.
CUresult attribute_of(void* data, CUpointer_attribute attribute, const Allocation& found,
                      CUdeviceptr ptr) {
  const bool managed = found.kind == MemoryKind::kManaged;
  const bool host = is_host(found.kind);
  switch (static_cast<int>(attribute)) {  // an older cuda.h lacks some of these
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Pool and mapped memory belongs to a device, not to a context.
      if (found.context == nullptr || found.kind == MemoryKind::kPool) {
        return put<CUcontext>(data, nullptr);
      }
      return put(data, found.context->handle());
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put<unsigned>(data, type_of(found.kind));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put_device_pointer(data, ptr);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      put<CUdeviceptr>(data, host || managed ? ptr : 0);
      return host || managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put<unsigned long long>(data, found.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put<unsigned>(data, managed ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put<int>(data, found.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put<int>(data, found.kind == MemoryKind::kDevice ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, found.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put<size_t>(data, found.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put<int>(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<unsigned long long>(data, found.handle_types);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(data, found.pool);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put<size_t>(data, mapping_of(found).bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(data, mapping_of(found).base);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put<unsigned long long>(data, found.id);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put<int>(data, managed || sync_memops().get(found.id) ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return put_tokens(data, found);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put<int>(data, found.kind == MemoryKind::kDevice || found.rdma ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put<int>(data, found.kind == MemoryKind::kDevice ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put<int>(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

bool exists(CUpointer_attribute attribute) {
  return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
         attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

// What one attribute reads as where there is nothing to tell: the driver writes zeros of its size.
void put_nothing(void* data, CUpointer_attribute attribute) {
  switch (static_cast<int>(attribute)) {  // an older cuda.h lacks some of these
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      put<int>(data, 0);
      return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put<int>(data, -2);
      return;
    default:
      put<uint64_t>(data, 0);
  }
}

// What one attribute of an unknown pointer reads as.
void put_of_unknown(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      put(data, ptr);
      return;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return;
    default:
      put_nothing(data, attribute);
  }
}

}  // namespace

extern "C" {

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return call(Call::cuPointerGetAttribute, [&] {
    const auto found = find_allocation(ptr);
    if (data == nullptr || !found) return CUDA_ERROR_INVALID_VALUE;
    return attribute_of(data, attribute, *found, ptr);
  });
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  return call(Call::cuPointerGetAttributes, [&] {
    if (numAttributes == 0 || attributes == nullptr || data == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto found = find_allocation(ptr);
    CUresult code = CUDA_SUCCESS;
    for (unsigned i = 0; i < numAttributes; ++i) {
      if (!exists(attributes[i])) {
        code = CUDA_ERROR_INVALID_VALUE;  // all others are told
      } else if (!found) {
        put_of_unknown(data[i], attributes[i], ptr);
      } else if (attribute_of(data[i], attributes[i], *found, ptr) != CUDA_SUCCESS) {
        put_nothing(data[i], attributes[i]);
      }
    }
    return code;
  });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return call(
      Call::cuPointerSetAttribute,
      [&] {
        const bool supported = value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        const auto found = supported ? find_allocation(ptr) : std::nullopt;
        if (!found) return CUDA_ERROR_INVALID_VALUE;
        sync_memops().set(found->id, *static_cast<const unsigned*>(value) != 0);
        return CUDA_SUCCESS;
      },
      in("attribute", attribute), address("ptr", ptr));
}

}  // extern "C"
