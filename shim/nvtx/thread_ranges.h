// SPDX-License-Identifier: Apache-2.0
// The ranges and phases in which each thread is. Ranges come from NVTX (injection.cc), whose names
// are numbers of names() here; a domain is the number of its name, 0 is the default domain. A
// thread's own mapping, made when it enters its first range and returned when it ends. Any thread.
#pragma once

#include <cstdint>

#include "allocator/base/mutex.h"
#include "allocator/record/phases.h"
#include "allocator/record/range_stack.h"

namespace cistern::shim {

// Locks are taken in this order: the one of the list, that of a thread, then those of the tree, of
// the names and of the phases. `phases` is guarded by the phases' own.
struct ThreadRanges {
  alloc::Mutex mutex;
  alloc::RangeStack stack;
  uint64_t phase_keys;  // given so far
  uint32_t* shown;      // this_thread.range of the thread
  alloc::Phases::Thread phases;
  ThreadRanges *previous, *next;
};

// The calling thread's; nullptr where there is no memory or the thread's end could not be noticed.
ThreadRanges* own_ranges();

// Both answer the level as NVTX does: from 0 on, or RangeStack::kNothingPushed or kNotTracked.
int push_range(uint32_t domain, uint32_t name);
int pop_range(uint32_t domain);

// `start` identifies the range in the process and is not 0; any thread may end it.
void start_range(uint32_t domain, uint32_t name, uint64_t start);
void end_range(uint64_t start);

// The domain is no more: what is open in it ends, on all threads.
void end_domain(uint32_t domain);

void reset_ranges_after_fork();

}  // namespace cistern::shim
