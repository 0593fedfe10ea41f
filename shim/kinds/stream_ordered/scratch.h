// SPDX-License-Identifier: Apache-2.0
// The scratch cache before cuMemAllocAsync and cuMemFreeAsync (allocator/scratch/scratch_cache.h):
// which stream a call means, when the cache may act, and the driver's calls that release blocks.
// Off unless FLAGS_limit_of_tmp_allocation or FLAGS_times_excess_than_required_tmp_allocation is
// set; call the other functions only if scratch_on() is true, unless they say otherwise. Any
// thread.
//
// Nothing is served or cached on a stream that captures; in a call that some capture forbids; on
// the per-thread default stream, which is one handle for the streams of all threads, whose end
// nobody sees; and on streams of contexts that are not pooled.
//
// To the driver, what the cache keeps is in use. So it is released before anything that depends on
// that: a synchronisation of the stream or context, after which the driver's pool releases what
// exceeds its threshold; a trim of the pool; another current pool; the end of the stream or
// context; any shortage on the device. Not while a capture is in progress anywhere: such a call
// could invalidate it. In queries of the memory free or in use, cached memory counts as free; only
// a pool's high-water mark of use, which the driver keeps, counts it as used.
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

// The stream of a call. `key` 0: nothing is cached there; `code` is then the driver's, if it would
// not say which stream it is.
struct ScratchStreamName {
  uint64_t key;
  CUstream handle;
  CUresult code;
};
// `stream` as Legacy::name() or PerThread::name() gives it.
ScratchStreamName scratch_stream(CUstream stream);

// Serves an allocation from the cache. If that is false, the caller asks the driver and tells
// scratch_allocated() what it gave, with the scratch_epoch() from before.
bool scratch_take(const ScratchStreamName& stream, size_t bytes, CUdeviceptr* out);
uint32_t scratch_epoch();
void scratch_allocated(const ScratchStreamName& stream, CUdeviceptr address, size_t bytes,
                       uint32_t epoch);
// The driver gave this address out from a pool that the program named: it is not cached at its
// free.
void scratch_forget(CUdeviceptr address);

// What the cache makes of a free: it is `answered` with `code`, or the caller asks the driver and
// tells scratch_freed() the answer.
struct ScratchFree {
  bool answered;
  CUresult code;
  alloc::ScratchBlock* block;
};
ScratchFree scratch_free(const ScratchStreamName& stream, CUdeviceptr address);
void scratch_freed(const ScratchFree& free, CUresult code);

// What the cache knows of an address. The driver is asked where its allocation starts, and how
// large that is (*whole). `foreign`: not known here. `live`: the program holds the block from
// *start, and asked for *bytes. `not_live`: the address lies in a cached block, or behind what the
// program asked for.
enum class ScratchFound : uint8_t { foreign, live, not_live };
ScratchFound scratch_find(CUdeviceptr address, uint64_t* start, uint64_t* bytes, uint64_t* whole);

// Another process gets to know the block that starts here: its free will go to the driver.
void scratch_exported(CUdeviceptr address);

// Bytes cached on a device, or of a pool: in use for the driver, free for the program.
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
// The current pool of a device is another one.
void scratch_pool_changed(CUdevice device);
// For order/contexts/context.h; these do nothing where the cache is off.
//
// A driver call that may end a context is about to be made, is over, or did end it.
void scratch_close(const Context& context);
void scratch_reopen(const Context& context);
void scratch_drop(const Context& context, CUcontext handle);
// Before the program synchronises a context, and once it has; `ticket` was closed in between.
void scratch_before_synchronise(const Context& context);
void scratch_synchronised(const Context& context, alloc::Ticket ticket);
// Memory is short on the device (kNoDevice: on one that is not known): releases everything and
// waits, at most 1 s, until the streams have reached those frees. False if there was nothing.
bool scratch_release_idle(CUdevice device);

void reset_scratch_after_fork();

}  // namespace cistern::shim
