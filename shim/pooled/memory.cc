// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/memory.h"

#include <algorithm>

#include "allocator/base/os.h"
#include "shim/entry/driver.h"
#include "shim/kinds/charges.h"
#include "shim/kinds/fill.h"
#include "shim/kinds/scratch.h"
#include "shim/order/capture_gate.h"
#include "shim/order/context.h"
#include "shim/order/suspicion.h"
#include "shim/pooled/free_wait.h"
#include "shim/pooled/selection.h"
#include "shim/process/log.h"
#include "shim/process/process.h"
#include "shim/process/thread.h"

namespace cistern::shim {
namespace {

// Running out is often a program's way of finding its limit, so this is news, not a warning.
CUresult out_of_memory(Context& context, size_t bytes) {
  Device& device = device_state(context.device);
  alloc::Ledger& ledger = device.ledger;
  const bool capped = device.cap.limit() != 0 && bytes > device.cap.available(/*idle=*/0);
  if (capped) ledger.refused_by_cap.add();
  if (!log_enabled(config::LogLevel::kInfo)) return CUDA_ERROR_OUT_OF_MEMORY;
  alloc::Usage u{};
  for_each_context([&](Context& c) {
    if (c.device == context.device) u += c.pool.usage();
  });
  const auto mib = [](uint64_t n) { return static_cast<double>(n) / (1 << 20); };
  const uint64_t reserved = ledger.reserved.get();
  const uint64_t held = u.live + u.idle + u.waiting + u.parked + u.garbage + u.quarantined;
  log(config::LogLevel::kInfo,
      "out of memory: %.1f MiB asked on device %d; live %.1f, idle %.1f, waiting %.1f, parked for "
      "graphs "
      "%.1f, lost to rounding %.1f, largest free block %.1f MiB; %s",
      mib(bytes), context.device.load(), mib(u.live), mib(u.idle), mib(u.waiting), mib(u.parked),
      mib(reserved > held ? reserved - held : 0), mib(context.pool.largest_free()),
      capped ? "CISTERN_GPU_LIMIT may be too low"
             : "the device has no more: another process may hold it");
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// What the driver says before it looks at an address: without a context, in one that is gone or
// whose work died, and inside a host function on a stream it answers nothing about memory.
CUresult refusal() {
  if (current_context() != nullptr) [[likely]]
    return CUDA_SUCCESS;
  size_t free, total;
  return noted(driver().cuMemGetInfo_v2(&free, &total));
}

// The same where a current context's work may have died.
CUresult refusal_here() {
  Context* context = current_context();
  return context != nullptr ? condition_of(*context) : refusal();
}

CUresult refusal(Context& owner) {
  const CUresult result = refusal();
  return result == CUDA_SUCCESS ? condition_of(owner) : result;
}

// While something captures: what the driver says of a call as unsafe as cuMemFree, from this
// thread. The query of an event that was never recorded is one, and does nothing else: it is
// refused, and invalidates the capture, where the free of a block that no pool had taken would do
// so.
CUresult ask_for_unsafe_call() {
  const Driver& d = driver();
  CUevent event;
  if (d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return CUDA_SUCCESS;
  const CUresult result = d.cuEventQuery(event);
  d.cuEventDestroy_v2(event);
  return result;
}

[[gnu::always_inline]] inline CUresult free_block(alloc::Chunk* chunk, CUdeviceptr address,
                                                  alloc::Ticket latest = alloc::Reclaim::kNow) {
  int code;
  // The driver would really free what the index knows as idle, or what surrounds an interior
  // pointer: such an address is answered here.
  if (context_of(chunk)->pool.free(chunk, address, &code, latest) == alloc::Freed::invalid) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return static_cast<CUresult>(code);
}

[[gnu::cold]] CUresult free_after_wait(alloc::Chunk* chunk, CUdeviceptr address) {
  alloc::Ticket latest = alloc::Reclaim::kNow;
  const CUresult waited = wait_before_free(chunk, address, &latest);
  return waited == CUDA_SUCCESS ? free_block(chunk, address, latest) : waited;
}

// The driver (or the cap) refuses at once, and emptying the pool could not help.
[[gnu::cold]] CUresult allocate_too_much(Context& context, CUdeviceptr* out, size_t bytes) {
  const bool physical = bytes > device_state(context.device).total.load();
  if (physical) return noted(driver().cuMemAlloc_v2(out, bytes));
  out_of_memory(context, bytes);
  return no_room();
}

CUresult allocate_charged(CUdeviceptr* out, size_t bytes) {
  if (!charging() || out == nullptr) return noted(driver().cuMemAlloc_v2(out, bytes));
  Charge charge(MemoryKind::direct, current_device(), bytes);
  if (charge.refused()) return no_room();
  const CUresult result = charge.ask([&] { return noted(driver().cuMemAlloc_v2(out, bytes)); });
  if (result == CUDA_SUCCESS) charge.keep(*out, current_handle());
  return result;
}

// In a context without a pool, or with arguments the driver refuses.
CUresult allocate_unpooled(CUdeviceptr* out, size_t bytes) {
  const CUresult result = allocate_charged(out, bytes);
  if (result == CUDA_SUCCESS && fill_on()) note_unfilled();
  return result;
}

// What the settings keep out of the pools; and inside a capture an allocation is the driver's to
// answer: under a cap, which may answer alone, it is first asked whether it would refuse.
int allocate_direct(Context& context, size_t bytes, bool pooled, uint64_t* address) {
  if (!pooled && !capture_gate().capturing()) {
    return context.pool.allocate_unpooled(bytes, this_thread.shard(), address);
  }
  const bool capped = device_state(context.device).cap.limit() != 0;
  const CUresult unsafe = capped ? ask_for_unsafe_call() : CUDA_SUCCESS;
  if (unsafe != CUDA_SUCCESS) return unsafe;
  return context.pool.allocate_direct(bytes, this_thread.shard(), pooled, address);
}

// While it lives this thread may free memory whatever captures there are: in this mode they forbid
// it only what would disturb them (cuda.h, cuThreadExchangeStreamCaptureMode).
class FreeInCaptures {
 public:
  FreeInCaptures() { this_thread.may_free_in_capture = exchange(); }
  ~FreeInCaptures() {
    if (this_thread.may_free_in_capture) exchange();
    this_thread.may_free_in_capture = false;
  }
  FreeInCaptures(const FreeInCaptures&) = delete;
  FreeInCaptures& operator=(const FreeInCaptures&) = delete;

 private:
  bool exchange() { return driver().cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS; }

  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// A capture, be it one that began and ended meanwhile, keeps the pools from returning what they
// could have returned for this allocation. What they still hold then serves also what is not to be
// pooled.
int allocate_at_last(Context& context, size_t bytes, bool pooled, uint64_t* address) {
  const unsigned shard = this_thread.shard();
  const auto allocate = [&] { return context.pool.allocate_direct(bytes, shard, pooled, address); };
  return_idle_memory();
  const int code = again_with_idle_memory(allocate(), allocate);
  const bool refused = code == CUDA_ERROR_OUT_OF_MEMORY && !pooled;
  return refused ? context.pool.allocate_at_last(bytes, shard, address) : code;
}

}  // namespace

namespace {

// A chunk that is on its way back to the driver, by itself or with its context, answers for its
// address until the driver has it; then the address is the driver's, or a new chunk's. No longer
// than a busy device may take.
alloc::Chunk* found_at_rest(CUdeviceptr address) {
  alloc::Chunk* chunk = nullptr;
  const auto rests = [&] {
    chunk = shared().index.find(address);
    return chunk == nullptr ||
           (chunk->is() != alloc::Role::released && !context_of(chunk)->source.closing());
  };
  alloc::os::wait_until(rests, 2'000'000'000);
  return chunk;
}

}  // namespace

bool ours(CUdeviceptr address, alloc::Chunk** chunk) {
  if (!active() || address == 0) return false;
  *chunk = shared().index.find(address);
  if (*chunk == nullptr) return false;
  if (contexts_ending.load(std::memory_order_relaxed) != 0 ||
      (*chunk)->is() == alloc::Role::released) [[unlikely]] {
    *chunk = found_at_rest(address);
  }
  return *chunk != nullptr;
}

namespace {

// Stream-ordered memory that the program frees without a stream. What the cache holds the driver
// would really free.
CUresult free_foreign(CUdeviceptr address) {
  const auto free_it = [=] {
    return refunding(address, [=] { return noted(driver().cuMemFree_v2(address)); });
  };
  if (!scratch_on()) return free_it();
  const ScratchFree free = scratch_free({0, nullptr, CUDA_SUCCESS}, address);
  if (free.answered) {
    const CUresult result = refusal_here();
    return result != CUDA_SUCCESS ? result : free.code;
  }
  const CUresult result = free_it();
  scratch_freed(free, result);
  return result;
}

CUresult foreign_range(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  uint64_t start, bytes, whole;
  const ScratchFound found =
      scratch_on() ? scratch_find(address, &start, &bytes, &whole) : ScratchFound::foreign;
  if (found == ScratchFound::foreign) return driver().cuMemGetAddressRange_v2(base, size, address);
  if (found == ScratchFound::not_held) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = start;
  if (size != nullptr) *size = bytes;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult allocate(CUdeviceptr* out, size_t bytes) {
  Context* context = active() && out != nullptr && bytes != 0 ? current_context() : nullptr;
  if (context == nullptr) return allocate_unpooled(out, bytes);
  bool pooled = true;
  const Device& device = device_state(context->device);
  if (bytes > device.fast_path_max_bytes.load(std::memory_order_relaxed)) [[unlikely]] {
    if (bytes > device.max_request_bytes.load()) return allocate_too_much(*context, out, bytes);
    pooled = selected(bytes);
  }
  if (const CUresult result = condition_of(*context); result != CUDA_SUCCESS) [[unlikely]]
    return result;
  uint64_t address;
  int code;
  if (!pooled || capture_gate().capturing()) [[unlikely]] {
    code = allocate_direct(*context, bytes, pooled, &address);
  } else {
    code = context->pool.allocate(bytes, this_thread.shard(), &address);
  }
  if (code == CUDA_ERROR_OUT_OF_MEMORY) [[unlikely]]
    code = allocate_at_last(*context, bytes, pooled, &address);
  if (code == CUDA_SUCCESS) [[likely]] {
    *out = address;
    return CUDA_SUCCESS;
  }
  return code == CUDA_ERROR_OUT_OF_MEMORY ? out_of_memory(*context, bytes)
                                          : static_cast<CUresult>(code);
}

CUresult free(CUdeviceptr address) {
  alloc::Chunk* chunk;
  if (!ours(address, &chunk)) return free_foreign(address);
  if (const CUresult result = refusal(*context_of(chunk)); result != CUDA_SUCCESS) [[unlikely]]
    return result;
  if (capture_gate().capturing()) [[unlikely]] {
    if (const CUresult result = ask_for_unsafe_call(); result != CUDA_SUCCESS) return result;
  }
  if (policy().free_sync) [[unlikely]]
    return free_after_wait(chunk, address);
  return free_block(chunk, address);
}

CUresult free_ordered(alloc::Chunk* chunk, CUdeviceptr address) {
  const CUresult result = refusal(*context_of(chunk));
  return result == CUDA_SUCCESS ? free_block(chunk, address) : result;
}

bool return_idle_memory(CUdevice device) {
  if (device == kNoDevice) return false;
  const alloc::Ledger& ledger = device_state(device).ledger;
  const uint64_t before = ledger.releases();
  // What another thread is just returning counts as well: it is kept nowhere any more.
  const bool others = shared().threads_moving.load() != 0;
  const FreeInCaptures free_in_captures;
  const bool any = return_idle_memory_of(device, /*except=*/nullptr);
  shared().await_moving();
  return any || others || ledger.releases() != before;
}

bool return_idle_memory() {
  const bool scratch = scratch_on() && scratch_relieve_all();
  return return_idle_memory(current_device()) || scratch;
}

CUresult no_room() {
  Context* context = current_context();
  const CUresult died = context != nullptr ? condition_of(*context) : CUDA_SUCCESS;
  if (died != CUDA_SUCCESS) return died;
  const CUresult unsafe = capture_gate().capturing() ? ask_for_unsafe_call() : CUDA_SUCCESS;
  return unsafe != CUDA_SUCCESS ? unsafe : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult address_range(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  alloc::Chunk* chunk;
  if (!ours(address, &chunk)) return foreign_range(base, size, address);
  Context& owner = *context_of(chunk);
  if (const CUresult result = refusal(owner); result != CUDA_SUCCESS) return result;
  uint64_t start, bytes;
  if (!owner.pool.find(chunk, address, &start, &bytes)) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = start;
  if (size != nullptr) *size = bytes;
  return CUDA_SUCCESS;
}

// The driver's handle names its whole allocation. For a whole block that is the block; inside a
// slab the other process would silently get the slab's beginning, so it is refused.
CUresult export_handle(CUipcMemHandle* handle, CUdeviceptr address) {
  alloc::Chunk* chunk;
  if (!ours(address, &chunk)) return driver().cuIpcGetMemHandle(handle, address);
  Context& owner = *context_of(chunk);
  if (const CUresult result = refusal(owner); result != CUDA_SUCCESS) return result;
  alloc::ContextPool& pool = owner.pool;
  if (!pool.is_live(chunk, address)) return CUDA_ERROR_INVALID_VALUE;
  if (const alloc::Role role = chunk->is();
      role == alloc::Role::slab || role == alloc::Role::split) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const CUresult result = driver().cuIpcGetMemHandle(handle, address);
  if (result == CUDA_SUCCESS) pool.mark_exported(chunk, address);
  return result;
}

}  // namespace cistern::shim
