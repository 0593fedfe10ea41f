// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/stream_ordered/memory_pools.h"

#include <atomic>

#include "allocator/base/records.h"
#include "allocator/base/threads.h"
#include "shim/entry/driver.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/shared.h"

namespace cistern::shim {
namespace {

struct PoolRecord {
  PoolRecord* next;
  uint64_t key;  // the handle
  PoolHome home;
};

constinit alloc::Mutex records_mutex;
constinit alloc::KeyedTable<PoolRecord, 8> pool_records{};
constinit alloc::Arena<PoolRecord, 64 * 1024> record_arena{};

uint64_t key_of(CUmemoryPool pool) { return reinterpret_cast<uint64_t>(pool); }

// The device whose default pool this is, or kNoDevice. No call creates or destroys a default pool,
// so no hook has noted it.
CUdevice device_of_default(CUmemoryPool pool) {
  const auto default_pool = driver().cuDeviceGetDefaultMemPool;
  CUmemoryPool found = nullptr;
  for (CUdevice device = 0; device < kMaxDevices && default_pool != nullptr; ++device) {
    if (default_pool(&found, device) != CUDA_SUCCESS) break;
    if (found == pool) return device;
  }
  return kNoDevice;
}

constinit std::atomic<bool> pools_are_used{false};

uint64_t unused_bytes(CUmemoryPool pool) {
  const auto ask = driver().cuMemPoolGetAttribute;
  cuuint64_t has = 0, in_use = 0;
  const bool known = ask != nullptr &&
                     ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &has) == CUDA_SUCCESS &&
                     ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &in_use) == CUDA_SUCCESS;
  return known && has > in_use ? has - in_use : 0;
}

bool trim_default_pool(CUdevice device) {
  CUmemoryPool pool = nullptr;
  if (driver().cuDeviceGetDefaultMemPool(&pool, device) != CUDA_SUCCESS) return false;
  const alloc::Movers::Moving moving(shared().movers);
  const uint64_t before = unused_bytes(pool);
  return before != 0 && driver().cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS &&
         unused_bytes(pool) < before;
}

}  // namespace

void note_stream_ordered_use() {
  if (!pools_are_used.load(std::memory_order_relaxed))
    pools_are_used.store(true, std::memory_order_relaxed);
}

bool trim_default_pools(CUdevice device) {
  const Driver& d = driver();
  if (!pools_are_used.load(std::memory_order_relaxed)) return false;
  if (d.cuDeviceGetDefaultMemPool == nullptr || d.cuMemPoolTrimTo == nullptr) return false;
  const GatePass pass;
  if (!pass) return false;
  bool any = false;
  for (CUdevice each = 0; each < known_devices_end(); ++each) {
    if (device == kNoDevice || device == each) any |= trim_default_pool(each);
  }
  return any;
}

void memory_pool_created(CUmemoryPool pool, const CUmemPoolProps& properties) {
  const bool on_device = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const bool managed = properties.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
  forget_home(pool);  // an earlier pool with this handle, if no hook saw its end
  remember_home(pool, {on_device ? properties.location.id : kNoDevice,
                       managed ? alloc::MemoryKind::managed : alloc::MemoryKind::stream_ordered});
}

std::optional<PoolHome> forget_home(CUmemoryPool pool) {
  PoolRecord* record;
  {
    const alloc::LockGuard guard(records_mutex);
    record = pool_records.find(key_of(pool));
    if (record != nullptr) pool_records.remove(record);
  }
  if (record == nullptr) return std::nullopt;
  const PoolHome home = record->home;
  record_arena.give_back(record);
  return home;
}

void remember_home(CUmemoryPool pool, PoolHome home) {
  PoolRecord* record = record_arena.take();
  if (record == nullptr) return;
  *record = {nullptr, key_of(pool), home};
  const alloc::LockGuard guard(records_mutex);
  if (pool_records.find(record->key) == nullptr) return pool_records.insert(record);
  record_arena.give_back(record);  // another thread was faster
}

PoolHome home_of(CUmemoryPool pool) {
  {
    const alloc::LockGuard guard(records_mutex);
    if (const PoolRecord* record = pool_records.find(key_of(pool))) return record->home;
  }
  const PoolHome home{device_of_default(pool), alloc::MemoryKind::stream_ordered};
  if (home.device != kNoDevice) remember_home(pool, home);
  return home;
}

void reset_memory_pools_after_fork() {
  records_mutex.reset();
  record_arena.reset_after_fork();
}

}  // namespace cistern::shim
