// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/stream_ordered/room.h"

#include <atomic>

#include "allocator/base/driver_rounding.h"
#include "shim/entry/driver.h"
#include "shim/kinds/stream_ordered/kept_pools.h"
#include "shim/order/barrier/debt.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/idle_memory.h"
#include "shim/order/device.h"
#include "shim/order/streams/events.h"
#include "shim/order/streams/streams.h"
#include "shim/pooled/out_of_memory.h"

namespace cistern::shim {
namespace {

// The driver's memory pools grow in steps as large as this.
constexpr uint64_t kPoolStep = uint64_t{32} << 20;

// What may be taken from a device before the driver is asked again. Half of what it said: contexts,
// modules, memory of other kinds and other processes take some of it unseen. Threads that come at
// once may ask once more, or once less.
struct Room {
  std::atomic<int64_t> left;
  std::atomic<uint64_t> reserved;  // by pools, when the driver said it

  bool take(uint64_t bytes, uint64_t reserved_now) {
    const uint64_t before = reserved.load(std::memory_order_relaxed);
    const uint64_t grown = reserved_now > before ? reserved_now - before : 0;
    const auto taken = static_cast<int64_t>(bytes);
    const int64_t rest = left.fetch_sub(taken, std::memory_order_relaxed) - taken;
    return rest > static_cast<int64_t>(grown);
  }
  void told(uint64_t free, uint64_t reserved_now) {
    reserved.store(reserved_now, std::memory_order_relaxed);
    left.store(static_cast<int64_t>(free / 2), std::memory_order_relaxed);
  }
};

constinit Room rooms[kMaxDevices]{};

bool keeps_memory(CUdevice device) {
  const alloc::Ledger& ledger = device_state(device).ledger;
  const uint64_t has = ledger.reserved.get() + ledger.scratch_bytes.get();
  return has >= ledger.live.get() + alloc::kDriverPage;
}

bool any_device_keeps_memory() {
  for (CUdevice device = 0; device < known_devices_end(); ++device) {
    if (keeps_memory(device)) return true;
  }
  return false;
}

// Whether the driver's pool keeps that much free, perhaps in pieces.
bool pool_has(CUmemoryPool pool, CUdevice device, uint64_t bytes) {
  const auto ask_pool = driver().cuDeviceGetMemPool;
  const auto ask = driver().cuMemPoolGetAttribute;
  const bool known =
      pool != nullptr || (ask_pool != nullptr && ask_pool(&pool, device) == CUDA_SUCCESS);
  cuuint64_t has = 0, used = 0;
  return known && ask != nullptr &&
         ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &has) == CUDA_SUCCESS &&
         ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) == CUDA_SUCCESS && has >= used + bytes;
}

// Whether the device may lack that much; its room is known then.
bool lacks_memory(CUcontext context, CUdevice device, uint64_t bytes) {
  const GatePass pass;
  if (!pass) return false;
  const uint64_t reserved = device_state(device).ledger.reserved.get();
  const ContextScope scope(context);
  size_t free = 0, total = 0;
  if (!scope || driver().cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS) return false;
  rooms[device].told(free, reserved);
  return free < bytes;
}

}  // namespace

void make_room_for_ordered(CUstream stream, CUmemoryPool pool, uint64_t bytes) {
  if (!active()) return;
  const bool pools_keep = keeps_pools() && several_pools_keep();
  if (!pools_keep && !any_device_keeps_memory()) return;
  CUcontext context = context_of_stream(stream);
  const CUdevice device = device_of(context);
  if (device == kNoDevice || !(pools_keep || keeps_memory(device))) return;
  const Device& there = device_state(device);
  if (bytes > there.total.load(std::memory_order_relaxed)) return;
  if (rooms[device].take(bytes, there.ledger.reserved.get())) return;
  if (!lacks_memory(context, device, bytes + kPoolStep)) return;
  // What the pool keeps may lie in pieces, but twice as much hardly in pieces that are all too
  // small.
  if (pool_has(pool, device, 2 * bytes)) return;
  const bool in_pool = pool_has(pool, device, bytes);
  // The driver's own frees would have been over by now.
  if (in_pool) pay_for_release();
  release_clean_memory_of(device);
  // Less than a step serves the request, too, if it is enough. Where it is not, the driver waits
  // for all work of the context: then what was freed is worth a wait here.
  if (!in_pool && lacks_memory(context, device, bytes + alloc::kDriverPage))
    release_idle_memory(device);
}

}  // namespace cistern::shim
