// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/memory.h"

#include <cstring>

#include "allocator/base/os.h"
#include "allocator/base/threads.h"
#include "shim/order/ask.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/pinned_pools.h"
#include "shim/order/shared.h"
#include "shim/pooled/free_wait.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/pooled/selection.h"
#include "shim/process/settings.h"
#include "shim/process/thread.h"

namespace cistern::shim {
namespace {

uint64_t address_of(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

// Fills memory as the pools do (PinnedSource). For zero bytes the driver may return no memory.
CUresult filled(CUresult result, void* const* out, size_t bytes) {
  const int byte = policy().fill_byte();
  if (result == CUDA_SUCCESS && byte >= 0 && *out != nullptr) {
    memset(*out, byte, bytes);
    pinned_ledger().fills.add();
    pinned_ledger().fill_bytes.add(bytes);
  }
  return result;
}

// If the driver is out of memory, idle memory of the pools goes back first.
CUresult ask_driver(void** out, size_t bytes, unsigned flags) {
  const auto call = [&] { return ask(driver().cuMemHostAlloc, out, bytes, flags); };
  CUresult result = call();
  if (!active()) return result;
  if (!capture_gate().capturing()) {
    result = again_with_idle_memory(result, call, release_idle_pinned_memory);
  }
  return filled(result, out, bytes);
}

// Programs can pin more than the documented default without Cistern. A limit that was set holds.
bool limit_was_set() { return policy().fraction_of_cuda_pinned_memory_to_use.set; }

// Much memory may wait for long work of another device. Then the driver serves requests that no
// clean memory can serve. Below a limit that was set only the pools serve, since it counts their
// memory.
bool may_grow(const PinnedPool& pinned, size_t bytes) {
  if (limit_was_set()) return true;
  if (shared().reclaim.frozen()) return false;
  return pinned.pool.waiting_bytes() <= alloc::Reclaim::kWaitingBound &&
         pinned_cap().has_room(alloc::Cap::alone(bytes));
}

CUresult without_pool(void** out, size_t bytes, unsigned flags) {
  if (!limit_was_set()) return ask_driver(out, bytes, flags);
  if (!pinned_cap().has_room(alloc::Cap::alone(bytes))) pinned_ledger().refused_by_cap.add();
  return no_room();
}

// During a capture the driver is asked whether it allows the call. If it does, the request gets an
// allocation of its own.
int allocate_in_capture(PinnedPool& pinned, size_t bytes, uint64_t* address) {
  const CUresult unsafe = ask_for_unsafe_call();
  if (unsafe != CUDA_SUCCESS) return unsafe;
  return pinned.pool.allocate_direct(bytes, this_thread.shard(), /*pooled=*/true, address);
}

// The pools count units of 512 bytes in 32 bits.
constexpr size_t kLargest = size_t{1} << 40;

int allocate_from(PinnedPool& pinned, size_t bytes, uint64_t* address) {
  if (bytes > kLargest) return CUDA_ERROR_OUT_OF_MEMORY;
  if (capture_gate().capturing()) return allocate_in_capture(pinned, bytes, address);
  const unsigned shard = this_thread.shard();
  return may_grow(pinned, bytes) ? pinned.pool.allocate(bytes, shard, address)
                                 : pinned.pool.allocate_clean(bytes, shard, address);
}

// A chunk that is being returned to the driver, by itself or with its context, stays in the index
// until the driver has it.
[[gnu::cold]] alloc::Chunk* pinned_at_rest(uint64_t address) {
  alloc::Chunk* chunk = nullptr;
  const auto rests = [&] {
    chunk = pinned_index().find(address);
    return chunk == nullptr ||
           (chunk->is() != alloc::Role::released && !pinned_pool_of(chunk)->source.closing());
  };
  alloc::os::wait_until(rests, alloc::Deadlines::kRelease);
  return chunk;
}

}  // namespace

CUresult allocate_pinned(void** out, size_t bytes, unsigned flags) {
  const bool ours = active() && policy().pinned_pool && out != nullptr && bytes != 0 &&
                    flags < kPinnedFlagSets && selected(bytes);
  Context* context = ours ? current_context() : nullptr;
  if (context == nullptr) return ask_driver(out, bytes, flags);
  if (const CUresult result = condition_of(*context); result != CUDA_SUCCESS) return result;
  PinnedPool* pinned = pinned_pool(*context, flags);
  if (pinned == nullptr) return ask_driver(out, bytes, flags);
  uint64_t address;
  const int code = allocate_from(*pinned, bytes, &address);
  if (code == CUDA_ERROR_OUT_OF_MEMORY) return without_pool(out, bytes, flags);
  if (code == CUDA_SUCCESS) *out = reinterpret_cast<void*>(address);
  return static_cast<CUresult>(code);
}

CUresult free_pinned(void* memory) {
  alloc::Chunk* chunk;
  if (!pinned(memory, &chunk)) return ask(driver().cuMemFreeHost, memory);
  PinnedPool& owner = *pinned_pool_of(chunk);
  if (const CUresult result = refusal(*owner.context); result != CUDA_SUCCESS) return result;
  if (capture_gate().capturing()) {
    if (const CUresult result = ask_for_unsafe_call(); result != CUDA_SUCCESS) return result;
  }
  const FreeWait wait =
      wait_before_pinned_free(*owner.context, owner.pool, chunk, address_of(memory));
  if (wait.over) return wait.answer;
  int code;
  const bool invalid =
      owner.pool.free(chunk, address_of(memory), &code, wait.latest) == alloc::Freed::invalid;
  if (invalid) return CUDA_ERROR_INVALID_VALUE;
  // More waiting memory than that is not worth keeping.
  if (owner.pool.waiting_bytes() > alloc::Reclaim::kWaitingBound) owner.pool.release_freed();
  return static_cast<CUresult>(code);
}

bool pinned(const void* memory, alloc::Chunk** chunk) {
  if (!active() || memory == nullptr) return false;
  *chunk = pinned_index().find(address_of(memory));
  if (*chunk == nullptr) return false;
  if (contexts_ending.load(std::memory_order_relaxed) != 0 ||
      (*chunk)->is() == alloc::Role::released) [[unlikely]] {
    *chunk = pinned_at_rest(address_of(memory));
  }
  return *chunk != nullptr;
}

bool holds_pinned(alloc::Chunk* chunk, const void* memory) {
  return pinned_pool_of(chunk)->pool.is_live(chunk, address_of(memory));
}

CUresult pinned_range(alloc::Chunk* chunk, CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  return block_range(pinned_pool_of(chunk)->pool, chunk, base, size, address);
}

CUresult pinned_flags(unsigned* flags, void* memory) {
  alloc::Chunk* chunk;
  const bool unknown = pinned(memory, &chunk) && !holds_pinned(chunk, memory);
  return ask(driver().cuMemHostGetFlags, flags,
             unknown ? reinterpret_cast<void*>(kNowhere) : memory);
}

CUresult pinned_device_pointer(CUdeviceptr* out, void* memory, unsigned flags) {
  alloc::Chunk* chunk;
  const bool unknown = pinned(memory, &chunk) && !holds_pinned(chunk, memory);
  return ask(driver().cuMemHostGetDevicePointer_v2, out,
             unknown ? reinterpret_cast<void*>(kNowhere) : memory, flags);
}

}  // namespace cistern::shim
