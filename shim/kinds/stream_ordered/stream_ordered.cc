// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/stream_ordered/stream_ordered.h"

#include <type_traits>

#include "shim/kinds/charges.h"
#include "shim/kinds/fill.h"
#include "shim/kinds/stream_ordered/kept_pools.h"
#include "shim/kinds/stream_ordered/memory_pools.h"
#include "shim/kinds/stream_ordered/room.h"
#include "shim/kinds/stream_ordered/scratch.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context.h"
#include "shim/order/streams/streams.h"
#include "shim/pooled/chosen_sites.h"
#include "shim/pooled/memory.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/pooled/refusal.h"

namespace cistern::shim {
namespace {

// Without a named pool, memory comes from the current pool of the stream's device, which is always
// one on that device.
PoolHome home_of_stream(CUstream stream) {
  const CUdevice device = device_of(context_of_stream(stream));
  return {device != kNoDevice ? device : current_device(), MemoryKind::stream_ordered};
}

// Memory that is allocated on a stream that captures is the graph's. The driver is asked only while
// something captures.
template <typename Kind>
bool graphs_own(CUstream stream) {
  bool capturing = false;
  return capture_gate().capturing() &&
         (captures<Kind>(stream, &capturing) != CUDA_SUCCESS || capturing);
}

// The stream as the scratch cache knows it. Without a key the driver serves: on a stream that
// captures the memory is the graph's, and beside a capture that forbids such calls the driver
// refuses. Out of line, so that a call without the cache stays short.
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

// From a pool on another device the stream may have no access to the block, which would kill its
// context.
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
  // What the driver will not take back stays counted, and charged as far as it was.
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

// What the driver says, whatever memory cuMemFreeAsync is to free that no graph owns. A stream that
// captures frees memory of its graph only; on others the call is unsafe beside a capture.
template <typename Kind>
CUresult refusal_of_free(CUstream stream) {
  bool captured;
  const CUresult result = captures<Kind>(stream, &captured);
  if (result != CUDA_SUCCESS) return result;
  if (captured) return CUDA_ERROR_INVALID_VALUE;
  return capture_gate().capturing() ? ask_for_unsafe_call() : CUDA_SUCCESS;
}

// cuda.h names no other kind of memory that cuMemFreeAsync would refuse. A pool block freed this
// way waits for all earlier work, which is more than the stream's; the driver must never see it.
template <typename Kind>
CUresult free_pooled(alloc::Chunk* chunk, CUdeviceptr address, CUstream stream) {
  const CUresult refused = refusal_of_free<Kind>(stream);
  return refused != CUDA_SUCCESS ? refused : free_ordered(chunk, address);
}

// The address is the cache's, and nothing that may be freed.
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
  if (ours(address, &chunk)) return free_pooled<Kind>(chunk, address, stream);
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

// For both meanings of stream 0.
template CUresult allocate_async<Legacy>(AllocateAsync, CUdeviceptr*, size_t, CUstream);
template CUresult allocate_async<PerThread>(AllocateAsync, CUdeviceptr*, size_t, CUstream);
template CUresult allocate_from_pool<Legacy>(AllocateFromPool, CUdeviceptr*, size_t, CUmemoryPool,
                                             CUstream);
template CUresult allocate_from_pool<PerThread>(AllocateFromPool, CUdeviceptr*, size_t,
                                                CUmemoryPool, CUstream);
template CUresult free_async<Legacy>(FreeAsync, CUdeviceptr, CUstream);
template CUresult free_async<PerThread>(FreeAsync, CUdeviceptr, CUstream);

}  // namespace cistern::shim
