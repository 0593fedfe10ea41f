// SPDX-License-Identifier: Apache-2.0
// The host side of libcistern.so: malloc is jemalloc, which gets its memory from the pool of host
// memory (allocator/host/host_pool.h) by extent hooks. jemalloc cuts and caches blocks. The pool
// owns the pages: it locks them and returns them to the system. The settings reach jemalloc as its
// configuration, which it reads once, at its first call.
//
// If Cistern is inactive (CISTERN_POOL=off, a bad setting), jemalloc works as it was built.
#pragma once

#include "allocator/host/host_pool.h"
#include "config/policy.h"
#include "shim/entry/loader.h"

// Null in libcistern-device.so, which leaves malloc alone.
#define CISTERN_HOST_ONLY [[gnu::weak, gnu::visibility("hidden")]]

namespace cistern::shim {

// The pool of the process. It serves nothing if Cistern is inactive.
alloc::host::HostPool& host_pool();
// Whether its pages are locked.
bool host_locks();

// FLAGS_free_idle_memory=true: pages that are idle for CISTERN_IDLE_MS go back to the system. The
// background thread does that, which starts with CUDA. Without the thread, idle memory beyond
// kMostIdleWithoutThread goes back at once. The rest goes back in this function, called whenever
// jemalloc returns memory to the pool; it acts at most once per CISTERN_IDLE_MS.
inline constexpr uint64_t kMostIdleWithoutThread = uint64_t{4} << 20;
void release_idle_host_memory_if_due();

// To be called at load: fills every block that malloc hands out with this byte, except those of
// calloc (FLAGS_init_allocated_mem).
void fill_host_memory(int byte);

void reset_idle_host_memory_after_fork();

// Whether Cistern's malloc serves the program. If another object's malloc comes first (the
// program's own, or a library's that was preloaded before), Cistern's is never called. But the
// program still calls Cistern's version of each function of malloc's family that the other object
// lacks. These functions then forward to the next definition, the C library's, which works with any
// malloc. Any thread; determined once, at load.
bool malloc_is_ours();

// Whether C++'s operators new and delete are Cistern's. They are the program's if malloc is not
// Cistern's, or if an object has operators of its own. C++ runtimes, and objects with a malloc of
// their own, do not count as such objects.
bool operators_are_ours();

// The next definition of this function after Cistern's; nullptr if there is none.
template <typename Function>
Function* next_of_family(const char* name) {
  return reinterpret_cast<Function*>(definition_after_us(name));
}

// The host side as the rest of the object sees it.

// Part::at_start.
CISTERN_HOST_ONLY void start_host_memory(const config::Policy& policy);

// Part::at_cuda_start.
CISTERN_HOST_ONLY void start_releasing_idle_host_memory(const config::Policy& policy);

// Part::at_bad_start: has the error of the settings logged with the program's first block.
CISTERN_HOST_ONLY void tell_bad_settings_at_first_block();

// For the report: writes what malloc got from the pool to `out`, and returns true.
CISTERN_HOST_ONLY bool describe_host_memory(alloc::host::HostUsage* out);

}  // namespace cistern::shim
