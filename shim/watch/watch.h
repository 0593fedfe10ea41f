// SPDX-License-Identifier: Apache-2.0
// Surrounds the hooks that allocate and free: records the caller and the result. Without a setting
// this is one load and a branch. Results are those of the call. Any thread.
//
// The code that serves the calls lies below this. So the records show what the program did, whether
// a pool or the driver served it, also with CISTERN_POOL=off.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/record/event.h"
#include "allocator/record/phases.h"
#include "shim/cuda_api.h"
#include "shim/nvtx/ranges.h"
#include "shim/record/record.h"

namespace cistern::shim {

// An allocation that is under way. While it exists, this_thread.site and .range tell where the call
// comes from.
class WatchedAllocation {
 public:
  WatchedAllocation(alloc::Memory memory, CUstream stream);
  ~WatchedAllocation();
  WatchedAllocation(const WatchedAllocation&) = delete;
  WatchedAllocation& operator=(const WatchedAllocation&) = delete;

  // `address` is used only if `result` is CUDA_SUCCESS.
  void ended(CUresult result, uint64_t address, uint64_t bytes);

 private:
  alloc::Event event_{};
};

// A free that is under way. Construct it before the pool or the driver frees: from then on another
// block may have the address.
class WatchedFree {
 public:
  WatchedFree(alloc::Memory memory, uint64_t address, CUstream stream);
  ~WatchedFree();
  WatchedFree(const WatchedFree&) = delete;
  WatchedFree& operator=(const WatchedFree&) = delete;

  void succeeded() { succeeded_ = true; }

 private:
  alloc::Event event_{};
  alloc::Event block_{};  // as it was allocated
  bool known_ = false;
  bool succeeded_ = false;
  bool ignored_ = false;  // the free became part of a capture
};

// The same if only phases observe, for memory outside the pools (pooled/memory.h reports pooled
// memory). Call note_not_live() before the free: it writes the block to `block`, so that the caller
// can undo it if the free fails. False if the memory belongs to no phase.
void note_live(alloc::Memory memory, uint64_t address, uint64_t bytes, CUstream stream);
bool note_not_live(alloc::Memory memory, uint64_t address, CUstream stream,
                   alloc::LiveBlocks::Block* block);

// A context ended, and with it all memory in it; `pooled`: the bytes of its pool's live blocks.
void watched_context_ended(CUcontext context, uint64_t pooled);
inline void watch_context_end(CUcontext context, uint64_t pooled) {
  if (watching()) [[unlikely]]
    watched_context_ended(context, pooled);
}

// To be called after a synchronisation by the program succeeded.
void watched_synchronised();
inline void watch_synchronised() {
  if (watching()) [[unlikely]]
    watched_synchronised();
}

inline uint64_t as_number(uint64_t address) { return address; }
inline uint64_t as_number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// `out` is where the call puts the address or handle.
template <typename Address, typename Call>
[[gnu::noinline]] CUresult watched_allocation(alloc::Memory memory, Address* out, uint64_t bytes,
                                              CUstream stream, Call call) {
  if (watching_phases_alone()) {
    const CUresult result = call();
    if (result == CUDA_SUCCESS && out != nullptr) note_live(memory, as_number(*out), bytes, stream);
    return result;
  }
  WatchedAllocation allocation(memory, stream);
  const CUresult result = call();
  const bool told = result == CUDA_SUCCESS && out != nullptr;
  allocation.ended(result, told ? as_number(*out) : 0, bytes);
  return result;
}

template <typename Address, typename Call>
[[gnu::always_inline]] inline CUresult watch_allocation(alloc::Memory memory, Address* out,
                                                        uint64_t bytes, CUstream stream,
                                                        Call call) {
  if (!watching()) [[likely]]
    return call();
  return watched_allocation(memory, out, bytes, stream, call);
}

template <typename Address, typename Call>
[[gnu::noinline]] CUresult watched_free(alloc::Memory memory, Address address, CUstream stream,
                                        Call call) {
  if (watching_phases_alone()) {
    alloc::LiveBlocks::Block block;
    const bool known = note_not_live(memory, as_number(address), stream, &block);
    const CUresult result = call();
    if (known && result != CUDA_SUCCESS) phase_block_not_freed(block);
    return result;
  }
  WatchedFree free(memory, as_number(address), stream);
  const CUresult result = call();
  if (result == CUDA_SUCCESS) free.succeeded();
  return result;
}

template <typename Address, typename Call>
[[gnu::always_inline]] inline CUresult watch_free(alloc::Memory memory, Address address,
                                                  CUstream stream, Call call) {
  if (!watching()) [[likely]]
    return call();
  return watched_free(memory, address, stream, call);
}

}  // namespace cistern::shim
