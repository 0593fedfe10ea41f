// SPDX-License-Identifier: Apache-2.0
// The scratch cache before cuMemAllocAsync and cuMemFreeAsync (allocator/scratch/scratch_cache.h):
// which stream a call means, when the cache may act, and the driver's calls that release blocks.
// Off unless FLAGS_limit_of_tmp_allocation or FLAGS_times_excess_than_required_tmp_allocation is
// set; call the other functions only if scratch_on() is true, unless they say otherwise. Any
// thread.
//
// The cache does nothing on a stream that captures, in a call that some capture forbids, and on
// streams of contexts that are not pooled. It does nothing on the per-thread default stream: one
// handle stands for the streams of all threads, and no hook sees such a stream end.
//
// To the driver, cached memory is in use. So the cache releases it before a synchronisation of the
// stream or context (after that the driver's pool releases what exceeds its threshold), a trim of
// the pool, a change of the current pool, the end of the stream or context, and in any shortage on
// the device. It releases nothing while a capture is in progress anywhere: the call could
// invalidate the capture. Queries of free or used memory count cached memory as free. Only the
// pool's high-water mark of use, which the driver keeps, counts it as used.
#pragma once

#include "allocator/scratch/scratch_cache.h"
#include "config/policy.h"
#include "shim/cuda_api.h"
#include "shim/order/contexts/context.h"
#include "shim/process/settings.h"

namespace cistern::shim {

// At load, from the policy.
void open_scratch(const config::Policy& policy);

inline bool scratch_on() { return active() && policy().caches_scratch(); }

// The stream of a call. If `key` is 0, nothing is cached on it; `code` is then the driver's error
// if the driver did not identify the stream, else CUDA_SUCCESS.
struct ScratchStreamName {
  uint64_t key;
  CUstream handle;
  CUresult code;
};
// `stream` as Legacy::name() or PerThread::name() gives it.
ScratchStreamName scratch_stream(CUstream stream);

// Serves an allocation from the cache. If false, the caller reads scratch_epoch(), makes the
// driver's call, and passes both results to scratch_allocated().
bool scratch_take(const ScratchStreamName& stream, size_t bytes, CUdeviceptr* out);
uint32_t scratch_epoch();
void scratch_allocated(const ScratchStreamName& stream, CUdeviceptr address, size_t bytes,
                       uint32_t epoch);
// The driver allocated this address from a pool that the program named: its free is not cached.
void scratch_forget(CUdeviceptr address);

// The cache's result of a free. If `answered`, the call returns `code`. Else the caller makes the
// driver's call and passes its result to scratch_freed().
struct ScratchFree {
  bool answered;
  CUresult code;
  alloc::ScratchBlock* block;
};
ScratchFree scratch_free(const ScratchStreamName& stream, CUdeviceptr address);
void scratch_freed(const ScratchFree& free, CUresult code);

// What the cache knows about an address. Asks the driver for the start and the size (*whole) of its
// allocation. `foreign`: not the cache's. `live`: the program holds the block at *start and
// requested *bytes. `not_live`: the address lies in a cached block, or behind the requested bytes.
enum class ScratchFound : uint8_t { foreign, live, not_live };
ScratchFound scratch_find(CUdeviceptr address, uint64_t* start, uint64_t* bytes, uint64_t* whole);

// The block that starts here was exported to another process: its free will go to the driver.
void scratch_exported(CUdeviceptr address);

// Bytes cached on a device, or from a pool: the driver counts them as used, the program must see
// them as free.
uint64_t scratch_cached_bytes(CUdevice device);
uint64_t scratch_cached_in(CUmemoryPool pool);

// Before the program synchronises a stream.
void scratch_empty_stream(CUstream stream);
// Before a stream is destroyed.
void scratch_end_stream(CUstream stream);
// The device whose current pool this is, or -1.
CUdevice scratch_device_of(CUmemoryPool pool);
// Before the program trims a pool: does nothing unless it is the current one of some device.
void scratch_empty_pool(CUmemoryPool pool);
// To be called after the current pool of a device was changed.
void scratch_pool_changed(CUdevice device);
// For order/contexts/context.h; these do nothing where the cache is off.
//
// To be called before a driver call that may end a context; after it; if it did end the context.
void scratch_close(const Context& context);
void scratch_reopen(const Context& context);
void scratch_drop(const Context& context, CUcontext handle);
// Before the program synchronises a context, and once it has; `ticket` was closed in between.
void scratch_before_synchronise(const Context& context);
void scratch_synchronised(const Context& context, alloc::Ticket ticket);
// If memory is short on the device (kNoDevice: it is not known on which): releases all cached
// memory and waits, at most 1 s, until the streams have reached these frees. False if nothing was
// cached.
bool scratch_release_idle(CUdevice device);

void reset_scratch_after_fork();

}  // namespace cistern::shim
