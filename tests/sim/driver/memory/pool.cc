// SPDX-License-Identifier: Apache-2.0
#include "memory/pool.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "base/handles.h"
#include "exec/capture.h"
#include "exec/context.h"
#include "exec/engine.h"
#include "memory/imports.h"
#include "memory/pool_object.h"
#include "memory/ranges.h"
#include "watch/watcher.h"

namespace simcuda {
namespace {

struct DevicePools {
  CUmemoryPool original;
  CUmemoryPool current;
};

struct Pools {
  HandleTable<CUmemoryPool, Pool> handles;
  std::mutex mutex;
  std::map<int, DevicePools> by_device;
  std::vector<std::weak_ptr<Pool>> all;
};

Pools& pools() {
  static Pools& all = *new Pools;
  return all;
}

constinit std::atomic<uint64_t> g_next_number{1};
constinit std::atomic<bool> g_any_memory{false};  // some pool handed memory out

// Caller holds pools().mutex.
CUmemoryPool add(std::shared_ptr<Pool> pool) {
  std::erase_if(pools().all, [](const auto& known) { return known.expired(); });
  pools().all.push_back(pool);
  return pools().handles.insert(std::move(pool));
}

// Caller holds pools().mutex.
DevicePools& of(Device& device) {
  DevicePools& entry = pools().by_device[device.ordinal()];
  if (entry.original == nullptr) {
    entry.original = add(std::make_shared<Pool>(device, CUmemPoolProps{}, next_pool_number()));
    entry.current = entry.original;
  }
  return entry;
}

bool captures(const Stream& stream) {
  const std::lock_guard lock(exec_mutex());
  return stream.capture != nullptr;
}

// Measured on an H100: on a stream that does not capture, such a call is as unsafe as cuMemFree.
CUresult refuse_beside_capture() { return any_capture() ? refuse_unsafe_call() : CUDA_SUCCESS; }

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

std::optional<uint64_t> count_of(const Pool& pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return pool.release_threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return pool.reserved();
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return pool.reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return pool.used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return pool.used_high;
    default:
      return std::nullopt;
  }
}

// What a stream's free is over for: what the host knows and what the stream comes after.
struct Asker {
  uint64_t stream;
  VectorClock knows;
};

Asker asker(const StreamRef& stream) { return {stream->id, known_to(stream)}; }

// A freed allocation goes for good. Caller holds the pool's mutex.
void end_freed(Pool& pool, CUdeviceptr address, const Pool::Ending& ending) {
  if (const auto range = take_range(address, MemoryKind::kPool, ending.id)) watch_ended(*range);
  pool.used -= ending.bytes;
}

// Freed allocations in a stretch that is handed out again go before their stream gets there.
void end_freed_in(Pool& pool, CUdeviceptr address, uint64_t bytes) {
  auto at = pool.ending.upper_bound(address);
  if (at != pool.ending.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second.bytes > address) at = before;
  }
  while (at != pool.ending.end() && at->first < address + bytes) {
    end_freed(pool, at->first, at->second);
    at = pool.ending.erase(at);
  }
}

struct Place {
  CUdeviceptr address = 0;
  // What was freed there may be ordered by nothing that the program did.
  bool unproven = false;
  std::vector<StreamFreeRef> after{};  // what the stream has to wait for
};

// Caller holds the pool's mutex. In the order of the CUDA Programming Guide, "Memory Reuse
// Policies".
Place place_for(Pool& pool, const Asker& who, uint64_t bytes, const VectorClock& host) {
  const auto by_order = [&](const StreamFree& freed) {
    return freed.stream == who.stream || host.covers(freed.done->at) ||
           (pool.reuse_follow_events && who.knows.covers(freed.done->at));
  };
  const auto by_progress = [&](const StreamFree& freed) {
    return by_order(freed) || freed.counted || reached(freed.done);
  };
  const auto all = [](const StreamFree&) { return true; };
  auto taken = pool.space.take(bytes, by_order);
  if (taken.address != 0) return {taken.address};
  if (pool.reuse_opportunistic) taken = pool.space.take(bytes, by_progress);
  if (taken.address != 0) return {taken.address, true};
  if (pool.space.grow(bytes, pool.most_bytes)) {
    return {pool.space.take(bytes, by_order).address, true};
  }
  if (pool.reuse_internal) taken = pool.space.take(bytes, all);
  return {taken.address, true, std::move(taken.after)};
}

Place find_place(Pool& pool, const StreamRef& stream, Allocation& wanted) {
  const Asker who = asker(stream);
  const VectorClock host = host_clock();
  const std::lock_guard lock(pool.mutex);
  Place place = place_for(pool, who, wanted.placed, host);
  if (place.address == 0) return place;
  end_freed_in(pool, place.address, wanted.placed);
  wanted.base = place.address;
  wanted.id = next_allocation_id();
  add_range(wanted, place.unproven ? Past::kForgotten : Past::kKept);
  pool.count(wanted.bytes);
  return place;
}

// A freed allocation when its stream is there. The memory was given to the pool at the call.
void reach_free(Pool& pool, CUdeviceptr address, uint64_t id) {
  const std::lock_guard lock(pool.mutex);
  const auto found = pool.ending.find(address);
  if (found == pool.ending.end() || found->second.id != id) return;
  found->second.freed->counted = true;
  end_freed(pool, address, found->second);
  pool.ending.erase(found);
}

CUresult free_pooled(const StreamRef& stream, Work work, const Allocation& found) {
  const std::shared_ptr<Pool> pool = found.owner;
  work.run = [pool, call = work.call, address = found.base, id = found.id] {
    set_current_call(call);
    reach_free(*pool, address, id);
  };
  const std::lock_guard lock(pool->mutex);
  MarkerRef done;
  const CUresult code = submit(stream, std::move(work), Wait::kNo, &done);
  if (code != CUDA_SUCCESS) return code;
  const auto freed = std::make_shared<StreamFree>(StreamFree{stream->id, std::move(done)});
  pool->ending[found.base] = {found.bytes, found.id, freed};
  pool->space.give(found.base, found.placed, freed);
  return code;
}

// Memory of another process: the mapping goes when the stream is there.
void run_free_imported(const Allocation& found) {
  if (const auto range = take_range(found.base, MemoryKind::kImported, found.id)) {
    watch_ended(*range);
    unmap_import(*range);
    const std::lock_guard lock(range->owner->mutex);
    range->owner->used -= range->bytes;
    range->owner->imported -= range->bytes;
  }
}

void run_free_plain(CUdeviceptr address, Context& owner) {
  if (settings().free_async == FreeAsync::kLate) {
    const std::lock_guard lock(exec_mutex());
    return owner.late_frees.push_back(address);
  }
  if (const auto ending = find_allocation(address)) watch_ended(*ending);
  device_of(address)->release(address);
}

bool set_ending(const Allocation& found) {
  return found.owner != nullptr ? set_range_ending(found.base, true)
                                : device_of(found.base)->set_ending(found.base);
}

void clear_ending(const Allocation& found) {
  if (found.owner != nullptr) {
    set_range_ending(found.base, false);
  } else {
    device_of(found.base)->clear_ending(found.base);
  }
}

}  // namespace

Pool::~Pool() {
  if (file >= 0) close(file);
}

std::shared_ptr<Pool> find_pool(CUmemoryPool handle) { return pools().handles.find(handle); }

CUmemoryPool add_pool(std::shared_ptr<Pool> pool) {
  const std::lock_guard lock(pools().mutex);
  return add(std::move(pool));
}

uint64_t next_pool_number() { return g_next_number.fetch_add(1); }

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
  const auto found = find_pool(pool);
  if (found == nullptr || &found->device != &device || found->file >= 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  of(device).current = pool;
  return CUDA_SUCCESS;
}

CUresult create_pool(const CUmemPoolProps& properties, CUmemoryPool* pool) {
  Device* device = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE
                       ? find_device(properties.location.id)
                       : nullptr;
  constexpr unsigned kKnown = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (device == nullptr || (properties.handleTypes & ~kKnown)) return CUDA_ERROR_INVALID_VALUE;
  *pool = add_pool(std::make_shared<Pool>(*device, properties, next_pool_number()));
  return CUDA_SUCCESS;
}

CUresult destroy_pool(CUmemoryPool pool) {
  const std::lock_guard lock(pools().mutex);
  const auto found = find_pool(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DevicePools& entry = of(found->device);
  if (entry.original == pool) return CUDA_ERROR_INVALID_VALUE;
  if (entry.current == pool) entry.current = entry.original;
  pools().handles.remove(pool);
  return CUDA_SUCCESS;
}

CUresult check_pool(CUmemoryPool pool) {
  return find_pool(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult get_pool_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  const auto pool = find_pool(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(pool->mutex);
  if (const int* flag = flag_of(*pool, attribute)) {
    *static_cast<int*>(value) = *flag;
  } else if (const auto count = count_of(*pool, attribute)) {
    *static_cast<cuuint64_t*>(value) = *count;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult set_pool_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  const auto pool = find_pool(handle);
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
  // A high-water mark can only be put back to what there is.
  if (wanted != 0) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
    pool->reserved_high = pool->reserved();
  } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
    pool->used_high = pool->used;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult trim_pool(CUmemoryPool handle, uint64_t keep_bytes) {
  const auto pool = find_pool(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (pool->shareable) return CUDA_SUCCESS;
  const VectorClock host = host_clock();
  const std::lock_guard lock(pool->mutex);
  pool->space.settle([&](const StreamFree& freed) { return host.covers(freed.done->at); });
  pool->space.trim(keep_bytes);
  return CUDA_SUCCESS;
}

CUresult allocate_async(Call call, CUmemoryPool handle, const StreamRef& stream, size_t bytes,
                        CUdeviceptr* address) {
  if (bytes == 0 || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  {
    const std::lock_guard lock(exec_mutex());
    if (stream->capture) return invalidate(*stream->capture);
  }
  if (const CUresult code = refuse_beside_capture(); code != CUDA_SUCCESS) return code;
  Context& context = stream->context;
  if (handle == nullptr) handle = current_pool(context.device());
  const auto pool = find_pool(handle);
  if (pool == nullptr || pool->file >= 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > pool->device.total_bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  keep_clocks();
  g_any_memory.store(true, std::memory_order_relaxed);
  Allocation wanted{.bytes = bytes,
                    .kind = MemoryKind::kPool,
                    .device = pool->device.ordinal(),
                    .placed = pool->space.placed(bytes),
                    .context = &context,
                    .pool = handle,
                    .owner = pool};
  Place place = find_place(*pool, stream, wanted);
  if (place.address == 0) {
    // Frees that streams have not reached yet may make the room.
    wait_for_context(context);
    pools_after_wait();
    place = find_place(*pool, stream, wanted);
  }
  if (place.address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = place.address;
  if (!watching() && place.after.empty()) return CUDA_SUCCESS;
  // The memory is there from this point of the stream on. What it waits for is the driver's doing:
  // the program cannot rely on it, and the clocks do not know of it.
  Work work{.call = call, .accesses = {{place.address, bytes, Touch::kWrite}}};
  for (const StreamFreeRef& freed : place.after) work.after.pending.push_back(freed->done);
  return submit(stream, std::move(work));
}

CUresult free_async(Call call, const StreamRef& stream, CUdeviceptr address) {
  const bool captured = captures(*stream);
  if (const CUresult code = captured ? CUDA_SUCCESS : refuse_beside_capture();
      code != CUDA_SUCCESS) {
    return code;
  }
  const auto found = find_allocation(address);
  const bool plain = found && found->kind == MemoryKind::kDevice;
  const bool freeable = found && found->base == address && (plain || found->owner != nullptr);
  if (plain && settings().free_async == FreeAsync::kRefused) return CUDA_ERROR_INVALID_VALUE;
  // A capture frees memory of its graph only, and there is none here.
  if (captured || !freeable || !set_ending(*found)) {
    watch_free_refused(address);
    return CUDA_ERROR_INVALID_VALUE;
  }
  Work work{.call = call, .accesses = {{address, found->bytes, Touch::kWrite}}, .ends = address};
  CUresult code = CUDA_SUCCESS;
  if (found->kind == MemoryKind::kPool) {
    code = free_pooled(stream, std::move(work), *found);
  } else {
    if (plain) {
      work.run = [call, address, owner = found->context] {
        set_current_call(call);
        run_free_plain(address, *owner);
      };
    } else {
      work.run = [imported = *found] { run_free_imported(imported); };
    }
    code = submit(stream, std::move(work));
  }
  if (code != CUDA_SUCCESS) clear_ending(*found);
  return code;
}

CUresult free_pool_memory(const Allocation& found) {
  Pool& pool = *found.owner;
  const std::lock_guard lock(pool.mutex);
  const auto range = remove_range(found.base, found.kind);
  if (!range) return CUDA_ERROR_INVALID_VALUE;  // another thread was first
  pool.used -= range->bytes;
  if (range->kind == MemoryKind::kImported) {
    pool.imported -= range->bytes;
    unmap_import(*range);
  } else {
    pool.space.give(range->base, range->placed, nullptr);
  }
  return CUDA_SUCCESS;
}

void pools_after_wait() {
  if (!g_any_memory.load(std::memory_order_relaxed)) return;
  std::vector<std::shared_ptr<Pool>> all;
  {
    const std::lock_guard lock(pools().mutex);
    for (const auto& known : pools().all) {
      if (auto pool = known.lock()) all.push_back(std::move(pool));
    }
  }
  const VectorClock host = host_clock();
  for (const auto& pool : all) {
    const std::lock_guard lock(pool->mutex);
    pool->space.settle([&](const StreamFree& freed) { return host.covers(freed.done->at); });
    if (!pool->shareable && pool->space.reserved_bytes() > pool->release_threshold) {
      pool->space.trim(pool->release_threshold);
    }
  }
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

}  // namespace simcuda
