// SPDX-License-Identifier: Apache-2.0
#include "memory/pool.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "base/handles.h"
#include "base/settings.h"
#include "exec/capture.h"
#include "exec/context.h"
#include "exec/engine.h"
#include "memory/device.h"
#include "watch/watcher.h"

namespace simcuda {
namespace {

struct Pool {
  explicit Pool(Device& owner) : device(owner) {}

  Device& device;
  std::mutex mutex;
  uint64_t release_threshold = 0;
  int reuse_follow_events = 1;
  int reuse_opportunistic = 1;
  int reuse_internal = 1;
  uint64_t used = 0;
  uint64_t used_high = 0;
};

struct DevicePools {
  CUmemoryPool original;
  CUmemoryPool current;
};

struct Pools {
  HandleTable<CUmemoryPool, Pool> handles;
  std::mutex mutex;
  std::map<int, DevicePools> by_device;
};

Pools& pools() {
  static Pools& all = *new Pools;
  return all;
}

// Caller holds pools().mutex.
DevicePools& of(Device& device) {
  DevicePools& entry = pools().by_device[device.ordinal()];
  if (entry.original == nullptr) {
    entry.original = pools().handles.insert(std::make_shared<Pool>(device));
    entry.current = entry.original;
  }
  return entry;
}

void count_in(Pool& pool, uint64_t bytes) {
  const std::lock_guard lock(pool.mutex);
  pool.used += bytes;
  pool.used_high = std::max(pool.used_high, pool.used);
}

bool captures(const Stream& stream) {
  const std::lock_guard lock(exec_mutex());
  return stream.capture != nullptr;
}

// The attribute's place in the pool, as what its type says.
int* flag_of(Pool& pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return &pool.reuse_follow_events;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      return &pool.reuse_opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return &pool.reuse_internal;
    default:
      return nullptr;
  }
}

uint64_t* count_of(Pool& pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return &pool.release_threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return &pool.used;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return &pool.used_high;
    default:
      return nullptr;
  }
}

}  // namespace

CUmemoryPool default_pool(Device& device) {
  const std::lock_guard lock(pools().mutex);
  return of(device).original;
}

CUmemoryPool current_pool(Device& device) {
  const std::lock_guard lock(pools().mutex);
  return of(device).current;
}

CUresult set_current_pool(Device& device, CUmemoryPool pool) {
  const std::lock_guard lock(pools().mutex);
  const auto found = pools().handles.find(pool);
  if (found == nullptr || &found->device != &device) return CUDA_ERROR_INVALID_VALUE;
  of(device).current = pool;
  return CUDA_SUCCESS;
}

CUresult create_pool(const CUmemPoolProps& properties, CUmemoryPool* pool) {
  Device* device = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE
                       ? find_device(properties.location.id)
                       : nullptr;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pool = pools().handles.insert(std::make_shared<Pool>(*device));
  return CUDA_SUCCESS;
}

CUresult destroy_pool(CUmemoryPool pool) {
  const std::lock_guard lock(pools().mutex);
  const auto found = pools().handles.find(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DevicePools& entry = of(found->device);
  if (entry.original == pool) return CUDA_ERROR_INVALID_VALUE;
  if (entry.current == pool) entry.current = entry.original;
  pools().handles.remove(pool);
  return CUDA_SUCCESS;
}

CUresult check_pool(CUmemoryPool pool) {
  return pools().handles.find(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult get_pool_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  const auto pool = pools().handles.find(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(pool->mutex);
  if (const int* flag = flag_of(*pool, attribute)) {
    *static_cast<int*>(value) = *flag;
  } else if (const uint64_t* count = count_of(*pool, attribute)) {
    *static_cast<cuuint64_t*>(value) = *count;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult set_pool_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  const auto pool = pools().handles.find(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(pool->mutex);
  if (int* flag = flag_of(*pool, attribute)) {
    *flag = *static_cast<int*>(value);
    return CUDA_SUCCESS;
  }
  const uint64_t wanted = *static_cast<cuuint64_t*>(value);
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    pool->release_threshold = wanted;
    return CUDA_SUCCESS;
  }
  const bool high =
      attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
  // A high-water mark can only be put back to what is in use.
  if (!high || wanted != 0) return CUDA_ERROR_INVALID_VALUE;
  pool->used_high = pool->used;
  return CUDA_SUCCESS;
}

CUresult allocate_async(Call call, CUmemoryPool handle, const StreamRef& stream, size_t bytes,
                        CUdeviceptr* address) {
  if (bytes == 0 || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  {
    const std::lock_guard lock(exec_mutex());
    if (stream->capture) return invalidate(*stream->capture);
  }
  Context& context = stream->context;
  if (handle == nullptr) handle = current_pool(context.device());
  const auto pool = pools().handles.find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Allocation wanted{.bytes = bytes,
                          .kind = MemoryKind::kPool,
                          .device = pool->device.ordinal(),
                          .context = &context,
                          .pool = handle};
  CUdeviceptr base = pool->device.allocate(wanted);
  if (base == 0) {
    // Frees that streams have not reached yet may make the room.
    wait_for_context(context);
    base = pool->device.allocate(wanted);
  }
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  count_in(*pool, bytes);
  *address = base;
  if (!watching()) return CUDA_SUCCESS;
  // The memory is there from this point of the stream on.
  return submit(stream, Work{.call = call, .accesses = {{base, bytes, Touch::kWrite}}});
}

CUresult free_async(Call call, const StreamRef& stream, CUdeviceptr address) {
  const auto found = find_allocation(address);
  const bool pooled = found && found->kind == MemoryKind::kPool;
  if (!pooled && settings().free_async == FreeAsync::kRefused) return CUDA_ERROR_INVALID_VALUE;
  const bool freeable = found && found->base == address &&
                        (found->kind == MemoryKind::kPool || found->kind == MemoryKind::kDevice);
  // A capture frees memory of its graph only, and there is none here.
  if (captures(*stream) || !freeable || !device_of(address)->set_ending(address)) {
    watch_free_refused(address);
    return CUDA_ERROR_INVALID_VALUE;
  }
  Work work{.call = call, .ends = address};
  work.accesses = {{address, found->bytes, Touch::kWrite}};
  const bool late = !pooled && settings().free_async == FreeAsync::kLate;
  work.run = [address, late, owner = found->context] {
    if (late) {
      const std::lock_guard lock(exec_mutex());
      return owner->late_frees.push_back(address);
    }
    if (const auto ending = find_allocation(address)) watch_ended(*ending);
    const auto freed = device_of(address)->release(address);
    if (freed && freed->kind == MemoryKind::kPool) left_pool(freed->pool, freed->bytes);
  };
  const CUresult code = submit(stream, std::move(work));
  if (code != CUDA_SUCCESS) device_of(address)->clear_ending(address);
  return code;
}

void finish_late_frees(Context& context) {
  std::vector<CUdeviceptr> freed;
  {
    const std::lock_guard lock(exec_mutex());
    freed.swap(context.late_frees);
  }
  for (const CUdeviceptr address : freed) {
    if (const auto ending = find_allocation(address)) watch_ended(*ending);
    device_of(address)->release(address);
  }
}

void left_pool(CUmemoryPool handle, uint64_t bytes) {
  const auto pool = pools().handles.find(handle);
  if (pool == nullptr) return;
  const std::lock_guard lock(pool->mutex);
  pool->used -= bytes;
}

}  // namespace simcuda
