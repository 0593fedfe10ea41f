// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/stream_ordered/scratch.h"

#include "allocator/base/os.h"
#include "shim/entry/driver.h"
#include "shim/kinds/charges.h"
#include "shim/order/ask.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/shared.h"
#include "shim/order/streams/stream_marks.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {

using alloc::ScratchCache;
using alloc::ScratchList;

namespace {

// While it exists, blocks may be on their way to the driver.
class Moving {
  const NoCancel counted_;
  const alloc::Movers::Moving moving_{shared().movers};
};

constinit ScratchCache cache{};

// The key of a stream is the driver's id for it. The legacy stream exists once per context: its key
// is the context's number with this bit, which no id has.
constexpr uint64_t kLegacyKey = uint64_t{1} << 63;

constexpr uint64_t kShortageWaitNs = 1'000'000'000;
constexpr int kMarkAttempts = 100;
constexpr uint64_t kMarkPauseNs = 100'000;

bool is_legacy(CUstream stream) { return stream == nullptr || stream == CU_STREAM_LEGACY; }

uint16_t number(const Context& context) { return static_cast<uint16_t>(context.number); }

// Registers the stream in the cache. False: its context is not pooled, or there is no memory.
bool introduce(const ScratchStreamName& stream) {
  Context* context;
  if (is_legacy(stream.handle)) {
    context = current_context();
  } else {
    CUcontext handle = nullptr;
    const Driver& d = driver();
    if (d.cuStreamGetCtx == nullptr || d.cuStreamGetCtx(stream.handle, &handle) != CUDA_SUCCESS) {
      return false;
    }
    context = context_named(handle);
  }
  return context != nullptr &&
         cache.add_stream(stream.key, reinterpret_cast<uint64_t>(stream.handle), number(*context),
                          static_cast<uint16_t>(context->device),
                          &device_state(context->device).ledger);
}

// Whether the handle still means the same stream: it may be a new stream's by now.
ScratchCache::Released still_there(const alloc::ScratchStream& stream) {
  if (stream.key & kLegacyKey) return ScratchCache::Released::done;
  unsigned long long id = 0;
  if (driver().cuStreamGetId(reinterpret_cast<CUstream>(stream.handle), &id) != CUDA_SUCCESS) {
    return ScratchCache::Released::not_now;
  }
  return id == stream.key ? ScratchCache::Released::done : ScratchCache::Released::stream_gone;
}

// Calls the driver's free for a cached block, which ends the block's charge. If the driver no
// longer knows the address, the block counts as freed.
template <typename Free>
ScratchCache::Released really_free(uint64_t address, Free free_it) {
  const CUresult result = refunding(address, [&] {
    const CUresult freed = free_it();
    return freed == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : freed;
  });
  return result == CUDA_SUCCESS ? ScratchCache::Released::done : ScratchCache::Released::not_now;
}

// Frees a block in the order of its stream, which still exists.
ScratchCache::Released release_block(uint64_t address, const alloc::ScratchStream& stream) {
  const auto handle = reinterpret_cast<CUstream>(stream.handle);
  const auto free_it = [&] {
    return really_free(address, [&] { return driver().cuMemFreeAsync(address, handle); });
  };
  if (!is_legacy(handle)) return free_it();
  const ContextScope scope(context_at(stream.context)->handle.load());
  return scope ? free_it() : ScratchCache::Released::not_now;
}

// True if anything was released. Blocks of one stream follow each other in the list, so the driver
// is asked once for each stream.
bool release_blocks(ScratchList blocks) {
  if (blocks.empty()) return false;
  const GatePass pass;
  const alloc::ScratchStream* asked = nullptr;
  auto there = ScratchCache::Released::not_now;
  bool any = false;
  while (alloc::ScratchBlock* block = blocks.pop()) {
    const alloc::ScratchStream& stream = *block->stream;
    if (pass && &stream != asked) there = still_there(stream);
    asked = &stream;
    auto result = there;
    if (result == ScratchCache::Released::done) result = release_block(block->address(), stream);
    any |= result == ScratchCache::Released::done;
    cache.released(block, result);
  }
  return any;
}

// Releases blocks of streams that have ended and whose work is done.
void release_ended(ScratchList blocks) {
  if (blocks.empty()) return;
  const GatePass pass;
  while (alloc::ScratchBlock* block = blocks.pop()) {
    const uint64_t address = block->address();
    cache.released(block, pass
                              ? really_free(address, [=] { return driver().cuMemFree_v2(address); })
                              : ScratchCache::Released::not_now);
  }
}

bool empty_device(CUdevice device) {
  const Moving moving;
  return release_blocks(cache.collect_device(static_cast<uint16_t>(device)));
}

// Marks and polls the calling thread's context. Whether freed memory became clean.
bool became_clean(alloc::Ticket newest) {
  const Context* context = current_context();
  alloc::Reclaim& reclaim = shared().reclaim;
  return context != nullptr && reclaim.mark(context->number, newest) &&
         reclaim.poll(context->number);
}

bool empty_stream(uint64_t key) {
  const Moving moving;
  return release_blocks(cache.collect_stream(key));
}

}  // namespace

void open_scratch(const config::Policy& policy) {
  const int64_t limit = policy.limit_of_tmp_allocation.value;
  cache.init(limit < 0 ? ScratchCache::kUnlimited : static_cast<uint64_t>(limit),
             policy.times_excess_than_required_tmp_allocation.value,
             !policy.fast_eager_deletion_mode.value, &shared().reclaim);
}

ScratchStreamName scratch_stream(CUstream stream) {
  if (stream == CU_STREAM_PER_THREAD) return {0, stream, CUDA_SUCCESS};
  Context* context = current_context();
  const CUresult died = context == nullptr ? CUDA_SUCCESS : condition_of(*context);
  if (died != CUDA_SUCCESS) return {0, stream, died};
  if (is_legacy(stream)) {
    const uint64_t key = context == nullptr ? 0 : kLegacyKey | context->number;
    return {key, CU_STREAM_LEGACY, CUDA_SUCCESS};
  }
  if (driver().cuStreamGetId == nullptr) return {0, stream, CUDA_SUCCESS};
  unsigned long long id = 0;
  const CUresult result = driver().cuStreamGetId(stream, &id);
  return {result == CUDA_SUCCESS ? id : 0, stream, result};
}

// --- allocation and free ---

bool scratch_take(const ScratchStreamName& stream, size_t bytes, CUdeviceptr* out) {
  if (stream.key == 0) return false;
  uint64_t address;
  alloc::Ticket wait_for;
  auto took = cache.take(stream.key, bytes, &address, &wait_for);
  if (took == ScratchCache::Took::unknown_stream) introduce(stream);
  if (wait_for != 0 && became_clean(wait_for)) {
    took = cache.take(stream.key, bytes, &address, &wait_for);
  }
  if (took != ScratchCache::Took::hit) return false;
  *out = address;
  return true;
}

uint32_t scratch_epoch() { return cache.epoch(); }

void scratch_allocated(const ScratchStreamName& stream, CUdeviceptr address, size_t bytes,
                       uint32_t epoch) {
  if (stream.key == 0) return scratch_forget(address);
  cache.add(address, bytes, stream.key, epoch);
}

void scratch_forget(CUdeviceptr address) { cache.forget(address); }

ScratchFree scratch_free(const ScratchStreamName& stream, CUdeviceptr address) {
  ScratchFree free{true, CUDA_SUCCESS, nullptr};
  ScratchList over_limit;
  const Moving moving;
  auto freed = cache.free(address, stream.key, &free.block, &over_limit);
  if (freed == ScratchCache::Freed::unknown_stream) {
    const uint64_t key = introduce(stream) ? stream.key : 0;
    freed = cache.free(address, key, &free.block, &over_limit);
  }
  release_blocks(over_limit);
  if (freed == ScratchCache::Freed::cached) return free;
  if (freed == ScratchCache::Freed::invalid) {
    free.code = stream.code != CUDA_SUCCESS ? stream.code : CUDA_ERROR_INVALID_VALUE;
    return free;
  }
  free.answered = false;
  return free;
}

void scratch_freed(const ScratchFree& free, CUresult code) {
  if (free.block != nullptr) cache.freed(free.block, code == CUDA_SUCCESS);
}

ScratchFound scratch_find(CUdeviceptr address, uint64_t* start, uint64_t* bytes, uint64_t* whole) {
  CUdeviceptr base = 0;
  size_t size = 0;
  if (driver().cuMemGetAddressRange_v2(&base, &size, address) != CUDA_SUCCESS) {
    return ScratchFound::foreign;
  }
  *whole = size;
  switch (cache.find(base, bytes)) {
    case ScratchCache::Found::foreign:
      return ScratchFound::foreign;
    case ScratchCache::Found::not_live:
      return ScratchFound::not_live;
    case ScratchCache::Found::live:
      break;
  }
  *start = base;
  return address - base < *bytes ? ScratchFound::live : ScratchFound::not_live;
}

void scratch_exported(CUdeviceptr address) { cache.mark_exported(address); }

uint64_t scratch_cached_bytes(CUdevice device) {
  return device_state(device).ledger.scratch_bytes.get();
}

uint64_t scratch_cached_in(CUmemoryPool pool) {
  const CUdevice device = scratch_device_of(pool);
  return device < 0 ? 0 : scratch_cached_bytes(device);
}

// --- release ---

void scratch_empty_stream(CUstream stream) {
  const ScratchStreamName name = scratch_stream(stream);
  if (name.key != 0) empty_stream(name.key);
}

void scratch_end_stream(CUstream stream) {
  const ScratchStreamName name = scratch_stream(stream);
  if (name.key == 0 || name.key & kLegacyKey) return;
  empty_stream(name.key);
  cache.end_stream(name.key);
}

CUdevice scratch_device_of(CUmemoryPool pool) {
  for (CUdevice device = 0; device < kMaxDevices; ++device) {
    CUmemoryPool current = nullptr;
    if (device_state(device).used.load(std::memory_order_acquire) &&
        driver().cuDeviceGetMemPool != nullptr &&
        driver().cuDeviceGetMemPool(&current, device) == CUDA_SUCCESS && current == pool) {
      return device;
    }
  }
  return -1;
}

void scratch_empty_pool(CUmemoryPool pool) {
  const CUdevice device = scratch_device_of(pool);
  if (device >= 0) empty_device(device);
}

void scratch_pool_changed(CUdevice device) {
  if (device < 0 || device >= kMaxDevices) return;
  cache.stop_serving_device(static_cast<uint16_t>(device));
  empty_device(device);
}

// --- for the clients of contexts ---

namespace {

void empty_context(const Context& context) {
  const Moving moving;
  release_blocks(cache.collect_context(number(context)));
}

void wait_for_all_work(const Context& context) {
  alloc::Reclaim& reclaim = shared().reclaim;
  const uint32_t number = context.number;
  const alloc::Ticket now = reclaim.stamp(number);
  // mark() fails while another thread makes marks.
  for (int i = 0; i < kMarkAttempts && !reclaim.frozen(); ++i) {
    if (reclaim.mark(number, now)) {
      reclaim.wait(number, now, kShortageWaitNs);
      return;
    }
    reclaim.poll(number);
    alloc::os::sleep_ns(kMarkPauseNs);
  }
}

// Releases the cached memory of a device, and waits until the streams have reached these frees.
// Without the cache the streams might have reached them long ago. So without the wait, the driver
// could have less free memory than it would have without the cache.
bool release_on(CUdevice device) {
  if (!empty_device(device)) return false;
  for_each_context([=](Context& context) {
    if (context.device == device) wait_for_all_work(context);
  });
  return true;
}

}  // namespace

void scratch_close(const Context& context) {
  if (!scratch_on()) return;
  empty_context(context);
  cache.close(number(context));
}

void scratch_reopen(const Context& context) {
  if (scratch_on()) cache.reopen(number(context));
}

void scratch_drop(const Context& context, CUcontext) {
  if (scratch_on()) cache.forget_context(number(context));
}

void scratch_before_synchronise(const Context& context) {
  if (scratch_on()) empty_context(context);
}

void scratch_synchronised(const Context& context, alloc::Ticket ticket) {
  if (!scratch_on()) return;
  const Moving moving;
  const auto device = static_cast<uint16_t>(context.device);
  release_ended(cache.collect_ended(number(context), device, ticket));
}

// kNoDevice: the stream or pool of a request may be on another device than the current one.
bool scratch_release_idle(CUdevice device) {
  if (!scratch_on()) return false;
  if (device != kNoDevice) return release_on(device);
  bool any = false;
  for (CUdevice each = 0; each < kMaxDevices; ++each) {
    if (device_state(each).used.load(std::memory_order_acquire)) any |= release_on(each);
  }
  return any;
}

void reset_scratch_after_fork() { cache.reset_after_fork(); }

}  // namespace cistern::shim
