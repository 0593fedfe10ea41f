// SPDX-License-Identifier: Apache-2.0
// The host side of libcistern.so: malloc is jemalloc's own, whose memory comes from the pool of
// host memory (allocator/host/host_pool.h) by way of jemalloc's extent hooks. What belongs to
// which: jemalloc cuts and caches blocks; the pool owns the pages, their locking and their return;
// the settings reach jemalloc as its configuration, in the one moment when it reads that.
//
// Where Cistern is inactive (CISTERN_POOL=off, a bad setting) jemalloc works as it was built.
#pragma once

#include "allocator/host/host_pool.h"
#include "config/policy.h"
#include "shim/entry/loader.h"

// Null in libcistern-device.so, which leaves malloc alone.
#define CISTERN_HOST_ONLY [[gnu::weak, gnu::visibility("hidden")]]

namespace cistern::shim {

// The pool of the process. Nothing comes from it where Cistern is inactive.
alloc::host::HostPool& host_pool();
// Whether its pages are locked.
bool host_locks();

// FLAGS_free_idle_memory=true: pages that were freed a while ago go back to the system, by a thread
// that is started with CUDA. Where there is none, more than so many bytes go back at
// once, and the rest in a free, looked at once a while.
inline constexpr uint64_t kMostIdleWithoutThread = uint64_t{4} << 20;
void release_idle_host_memory_if_due();

// From now on every block that malloc hands out is filled with this byte
// (FLAGS_init_allocated_mem), but for those of calloc. At load.
void fill_host_memory(int byte);

void reset_idle_host_memory_after_fork();

// Whose malloc serves the program. If another object's malloc comes before ours (the program's own,
// or that of a library preloaded before), ours is never called. But functions of the family that
// the other object lacks are called: they forward each call to the next definition, in the C
// library, which works with any malloc. Any thread; determined once, at load.
bool malloc_is_ours();

// Whether C++'s operators new and delete are ours: malloc is, and no object but a C++ runtime, or
// one that brings a malloc, too, has operators of its own, which are the program's.
bool operators_are_ours();

// The function of that name after ours; nullptr if there is none.
template <typename Function>
Function* next_of_family(const char* name) {
  return reinterpret_cast<Function*>(definition_after_us(name));
}

// The host side as the rest of the object sees it.

// Part::at_start.
CISTERN_HOST_ONLY void start_host_memory(const config::Policy& policy);

// Part::at_cuda_start.
CISTERN_HOST_ONLY void start_releasing_idle_host_memory(const config::Policy& policy);

// Part::at_bad_start: no chunk is ever taken, so the program's first block counts as one.
CISTERN_HOST_ONLY void tell_bad_settings_at_first_block();

// What malloc got from the pool, for the report.
CISTERN_HOST_ONLY bool describe_host_memory(alloc::host::HostUsage* out);

}  // namespace cistern::shim
