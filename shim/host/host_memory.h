// SPDX-License-Identifier: Apache-2.0
// The host side of libcistern.so: malloc is jemalloc's own, whose memory comes from the pool of
// host memory (allocator/host/host_pool.h) by way of jemalloc's extent hooks. What belongs to
// which: jemalloc cuts and caches blocks; the pool owns the pages, their locking and their return;
// the settings reach jemalloc as its configuration, in the one moment when it reads that.
//
// Where Cistern is inactive (CISTERN_POOL=off, a bad setting) jemalloc works as it was built.
#pragma once

#include "allocator/host/host_pool.h"

namespace cistern::shim {

// The pool of the process. Nothing comes from it where Cistern is inactive.
alloc::host::HostPool& host_pool();
// Whether its pages are locked.
bool host_locks();

// FLAGS_free_idle_memory=true: pages that were freed a while ago go back to the system, by a thread
// that is started with CUDA (start.h). Where there is none, more than so many bytes go back at
// once, and the rest in a free, looked at once a while.
inline constexpr uint64_t kMostIdleWithoutThread = uint64_t{4} << 20;
void release_idle_host_memory_if_due();

// From now on every block that malloc hands out is filled with this byte
// (FLAGS_init_allocated_mem), but for those of calloc. At load.
void fill_host_memory(int byte);

void reset_idle_host_memory_after_fork();

}  // namespace cistern::shim
