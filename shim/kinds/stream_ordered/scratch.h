// SPDX-License-Identifier: Apache-2.0
// The scratch cache before cuMemAllocAsync and cuMemFreeAsync (allocator/scratch/scratch_cache.h):
// which stream a call means, when the cache may act, and the driver's calls that give blocks back.
// Off unless FLAGS_limit_of_tmp_allocation or FLAGS_times_excess_than_required_tmp_allocation is
// set; every function but scratch_on() is for when it is on, unless it says otherwise. Any thread.
//
// Left to the driver: a stream that captures; the per-thread default stream, one handle for as many
// streams as there are threads, which end unseen; streams of contexts that are not pooled.
//
// What the cache keeps counts as in use by the driver, so it is given back before anything that
// depends on that: a synchronisation of the stream or context, after which the driver's pool
// releases what exceeds its threshold; a trim of the pool; another current pool; the end of the
// stream or context; any shortage on the device. Not while a capture is in progress anywhere: such
// a call could invalidate it. Questions how much memory is free or in use are answered without what
// is cached; a pool's high-water mark of use is the driver's and counts it.
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

// An allocation from the cache; else the driver is asked, and its answer told.
bool scratch_take(const ScratchStreamName& stream, size_t bytes, CUdeviceptr* out);
uint32_t scratch_epoch();
void scratch_allocated(const ScratchStreamName& stream, CUdeviceptr address, size_t bytes,
                       uint32_t epoch);
// An address the driver gave out from a pool of the program's choice.
void scratch_forget(CUdeviceptr address);

// A free is either answered here, or the driver is asked and its answer told.
struct ScratchFree {
  bool answered;
  CUresult code;
  alloc::ScratchBlock* block;
};
ScratchFree scratch_free(const ScratchStreamName& stream, CUdeviceptr address);
void scratch_freed(const ScratchFree& free, CUresult code);

// What the cache knows of an address; the driver is asked where its allocation starts, and how
// large it is (*whole). `held`: the program holds the block from *start with the *bytes it asked
// for. `not_held`: it lies in a cached
// block, or behind what the program asked for.
enum class ScratchFound : uint8_t { foreign, held, not_held };
ScratchFound scratch_find(CUdeviceptr address, uint64_t* start, uint64_t* bytes, uint64_t* whole);

// Another process gets to know the block that starts here: its free will be a real one.
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
// For order/contexts/context_client.h; these do nothing where the cache is off.
//
// A context may be about to end, does not end after all, or has ended.
void scratch_close(const Context& context);
void scratch_reopen(const Context& context);
void scratch_drop(const Context& context, CUcontext handle);
// Before the program synchronises a context, and once it has; `ticket` was closed in between.
void scratch_before_synchronise(const Context& context);
void scratch_synchronised(const Context& context, alloc::Ticket ticket);
// Memory is short on the device (kNoDevice: on one that is not known): gives everything back and
// waits until the streams got there, at most a second. False if there was nothing.
bool scratch_release_idle(CUdevice device);

void reset_scratch_after_fork();

}  // namespace cistern::shim
