// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/stream_ordered/memory_pools.h"

#include <atomic>
#include <type_traits>

#include "allocator/base/source.h"
#include "shim/entry/driver.h"
#include "shim/kinds/charges.h"
#include "shim/kinds/stream_ordered/scratch.h"
#include "shim/kinds/unpooled.h"
#include "shim/order/barrier/work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/shared.h"
#include "shim/order/streams/stream_marks.h"
#include "shim/pooled/memory.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/pooled/selection.h"

namespace cistern::shim {
namespace {

// --- room. Before the driver returns out of memory, it waits for all work of the context, since
// frees that streams have not reached yet may make room. That work may wait for the program's next
// call. So the driver must not lack memory that pools keep idle: it goes back before the driver is
// asked. First memory that no work can touch goes back. If the device still lacks memory, the rest
// goes back, and what other pools of the driver keep because of us.

// The driver's memory pools grow in steps of this size.
constexpr uint64_t kPoolStep = uint64_t{32} << 20;

// How many bytes may be requested of a device before its free memory is queried again: half of the
// free bytes at the last query. Contexts, modules, memory of other kinds and other processes take
// some of it unseen. Threads that request at the same time may query once more or once less.
struct Room {
  std::atomic<int64_t> left;
  std::atomic<uint64_t> reserved;  // by our pools, at the last query

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

// Whether the driver's pool has that many free bytes, perhaps in pieces.
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

// The free bytes of the device, noted in its Room; UINT64_MAX: not known.
uint64_t free_on(CUcontext context, CUdevice device) {
  const GatePass pass;
  if (!pass) return UINT64_MAX;
  const uint64_t reserved = device_state(device).ledger.reserved.get();
  const ContextScope scope(context);
  size_t free = 0, total = 0;
  if (!scope || driver().cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS) return UINT64_MAX;
  rooms[device].told(free, reserved);
  return free;
}

// To be called before the driver is asked for `bytes` on a stream that does not capture, from the
// program's `pool` (nullptr: the current pool). Does nothing if our pools keep nothing, or if the
// driver's pool has the memory. The device's free memory is not queried at each call: there is
// enough as long as less than half of the last result was requested since. Memory that no work can
// touch goes back without a wait. If the request is still larger than the device's free memory, all
// idle memory goes back. That waits for the work before the newest free as long as a free of the
// driver may take (Deadlines::kRelease), and 0.2 s for other work.
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
  const uint64_t free = free_on(context, device);
  if (free >= bytes + kPoolStep) return;
  const bool in_pool = pool_has(pool, device, bytes), fits = free >= bytes + alloc::kDriverPage;
  if (in_pool && fits) return;
  // The pool's free memory may lie in pieces that are too small for the request. Then ours must go
  // back. With the driver alone, earlier frees would be over by now, so their debts are paid first.
  if (in_pool) pay_for_release();
  release_clean_memory_of(device);
  // The driver serves the request even from less than one step if that is enough. If it is not, the
  // driver waits for all work of the context, so a wait for freed memory is worth it here.
  if (!in_pool && free_on(context, device) < bytes + alloc::kDriverPage)
    release_idle_memory(device);
}

// --- requests and frees

// Without a named pool, memory comes from the current pool of the stream's device, and that pool is
// always on that device.
PoolHome home_of_stream(CUstream stream) {
  const CUdevice device = device_of(context_of_stream(stream));
  return {device != kNoDevice ? device : current_device(), MemoryKind::stream_ordered};
}

// Memory that is allocated on a capturing stream belongs to the graph. The driver is asked only
// while a capture is in progress.
template <typename Kind>
bool graphs_own(CUstream stream) {
  bool capturing = false;
  return capture_gate().capturing() &&
         (captures<Kind>(stream, &capturing) != CUDA_SUCCESS || capturing);
}

// The stream as the scratch cache knows it. Without a key the driver serves the call: on a
// capturing stream the memory belongs to the graph, and if a capture forbids such calls, the driver
// refuses. Out of line, so that calls without the cache stay short.
template <typename Kind>
[[gnu::noinline]] ScratchStreamName scratch_stream_of(CUstream stream) {
  if (capture_gate().capturing()) {
    bool captured;
    const CUresult result = captures<Kind>(stream, &captured);
    if (result != CUDA_SUCCESS) return {0, stream, result};
    if (captured || ask_for_unsafe_call() != CUDA_SUCCESS) return {0, stream, CUDA_SUCCESS};
  }
  return scratch_stream(Kind::name(stream));
}

template <typename Kind>
Memset memset_of() {
  return std::is_same_v<Kind, Legacy> ? driver().cuMemsetD8Async : driver().cuMemsetD8Async_ptsz;
}

template <typename Kind>
FreeAsync free_of() {
  return std::is_same_v<Kind, Legacy> ? driver().cuMemFreeAsync : driver().cuMemFreeAsync_ptsz;
}

// If the pool is on another device, the stream may have no access to the block. A fill would then
// kill the context.
template <typename Kind>
void fill_from_pool(CUdeviceptr address, size_t bytes, CUmemoryPool pool, CUstream stream) {
  const PoolHome home = home_of(pool);
  if (home.kind != MemoryKind::stream_ordered || home.device != home_of_stream(stream).device) {
    return note_unfilled();
  }
  fill_ordered(memset_of<Kind>(), address, bytes, stream, home);
}

template <typename Kind, typename Home, typename Allocate>
CUresult allocate_charged(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream,
                          Home home, Allocate allocate_it) {
  const bool takes = out != nullptr && bytes != 0 && !graphs_own<Kind>(stream);
  if (takes) {
    note_stream_ordered_use();
    if (keeps_pools()) kept_pools_used(pool);
    make_room_for_ordered(Kind::name(stream), pool, bytes);
  }
  if (!charging() || !takes) return ask_for_memory(allocate_it);
  const PoolHome where = home();
  const CUdeviceptr address_before = *out;
  Charge charge(where.kind, where.device, bytes);
  if (charge.refused()) {
    bool capturing;
    const CUresult result =
        captures<Kind>(stream, &capturing);  // the driver's error for a bad stream
    return result != CUDA_SUCCESS ? result : no_room();
  }
  const CUresult result = charge.ask(allocate_it);
  if (result != CUDA_SUCCESS) return result;
  if (charge.place(*out)) {
    charge.keep(*out, /*context=*/nullptr);
    return result;
  }
  // If the driver refuses the free, the memory stays counted, with the charge made so far.
  if (ask(free_of<Kind>(), *out, stream) != CUDA_SUCCESS) charge.hand_over();
  *out = address_before;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

template <typename Kind>
CUresult serve_async(AllocateAsync real, CUdeviceptr* out, size_t bytes, CUstream stream) {
  const auto ask_driver = [=] {
    return allocate_charged<Kind>(
        out, bytes, /*pool=*/nullptr, stream, [=] { return home_of_stream(stream); },
        [=] { return ask(real, out, bytes, stream); });
  };
  if (!scratch_on() || out == nullptr || bytes == 0) [[likely]]
    return ask_driver();
  ScratchStreamName name = scratch_stream_of<Kind>(stream);
  if (!site_is_pooled()) name.key = 0;  // neither from the cache nor, once freed, into it
  if (scratch_take(name, bytes, out)) return CUDA_SUCCESS;
  const uint32_t epoch = scratch_epoch();
  const CUresult result = ask_driver();
  if (result == CUDA_SUCCESS) scratch_allocated(name, *out, bytes, epoch);
  return result;
}

// The driver's error for cuMemFreeAsync of memory that no graph owns. A capturing stream may free
// only memory of its graph. On other streams the call is unsafe while a capture is in progress.
template <typename Kind>
CUresult refusal_of_free(CUstream stream) {
  bool captured;
  const CUresult result = captures<Kind>(stream, &captured);
  if (result != CUDA_SUCCESS) return result;
  if (captured) return CUDA_ERROR_INVALID_VALUE;
  return capture_gate().capturing() ? ask_for_unsafe_call() : CUDA_SUCCESS;
}

// The program's call, to be made if the pools do not take the memory back.
class FreeInDriver final : public alloc::OrderedFree {
 public:
  FreeInDriver(FreeAsync real, CUstream stream) : real_(real), stream_(stream) {}
  int free(uint64_t address) const override { return ask(real_, CUdeviceptr{address}, stream_); }

 private:
  const FreeAsync real_;
  CUstream stream_;
};

// cuda.h names no memory that cuMemFreeAsync would refuse, except in the cases of
// refusal_of_free(). So the program may free a block of the pools this way. The block waits for all
// earlier work, which is more than the stream's; the driver must never see it.
template <typename Kind>
CUresult free_pooled(FreeAsync real, alloc::Chunk* chunk, CUdeviceptr address, CUstream stream) {
  const CUresult refused = refusal_of_free<Kind>(stream);
  return refused != CUDA_SUCCESS ? refused
                                 : free_ordered(chunk, address, FreeInDriver(real, stream));
}

// The address is the cache's, but not of a block that may be freed.
template <typename Kind>
CUresult refuse_cached(CUresult code, CUstream stream) {
  const CUresult refused =
      capture_gate().capturing() ? refusal_of_free<Kind>(stream) : CUDA_SUCCESS;
  return refused != CUDA_SUCCESS ? refused : code;
}

}  // namespace

template <typename Kind>
CUresult allocate_async(AllocateAsync real, CUdeviceptr* out, size_t bytes, CUstream stream) {
  const CUresult result = serve_async<Kind>(real, out, bytes, stream);
  if (result == CUDA_SUCCESS && fill_on()) [[unlikely]]
    fill_ordered(memset_of<Kind>(), *out, bytes, stream, home_of_stream(stream));
  return result;
}

template <typename Kind>
CUresult allocate_from_pool(AllocateFromPool real, CUdeviceptr* out, size_t bytes,
                            CUmemoryPool pool, CUstream stream) {
  const CUresult result = allocate_charged<Kind>(
      out, bytes, pool, stream, [=] { return home_of(pool); },
      [=] { return ask(real, out, bytes, pool, stream); });
  if (result == CUDA_SUCCESS && scratch_on()) scratch_forget(*out);
  if (result == CUDA_SUCCESS && fill_on()) fill_from_pool<Kind>(*out, bytes, pool, stream);
  return result;
}

template <typename Kind>
CUresult free_async(FreeAsync real, CUdeviceptr address, CUstream stream) {
  alloc::Chunk* chunk;
  if (ours(address, &chunk)) return free_pooled<Kind>(real, chunk, address, stream);
  const auto ask_driver = [=] {
    return refunding(address, [=] { return ask(real, address, stream); });
  };
  if (!scratch_on()) [[likely]]
    return ask_driver();
  const ScratchFree free = scratch_free(scratch_stream_of<Kind>(stream), address);
  if (free.answered) {
    return free.code == CUDA_SUCCESS ? free.code : refuse_cached<Kind>(free.code, stream);
  }
  const CUresult result = ask_driver();
  scratch_freed(free, result);
  return result;
}

// Instantiated for both meanings of stream 0.
template CUresult allocate_async<Legacy>(AllocateAsync, CUdeviceptr*, size_t, CUstream);
template CUresult allocate_async<PerThread>(AllocateAsync, CUdeviceptr*, size_t, CUstream);
template CUresult allocate_from_pool<Legacy>(AllocateFromPool, CUdeviceptr*, size_t, CUmemoryPool,
                                             CUstream);
template CUresult allocate_from_pool<PerThread>(AllocateFromPool, CUdeviceptr*, size_t,
                                                CUmemoryPool, CUstream);
template CUresult free_async<Legacy>(FreeAsync, CUdeviceptr, CUstream);
template CUresult free_async<PerThread>(FreeAsync, CUdeviceptr, CUstream);

}  // namespace cistern::shim
