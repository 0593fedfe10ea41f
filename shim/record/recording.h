// SPDX-License-Identifier: Apache-2.0
// Whether anything observes the program's allocations, and the recording of this process
// (CISTERN_RECORD).
//
// Settings decide at load what observes: a recording, the report by site, the log of reuse, phases,
// or settings for some call sites. The hooks check that first, so without such a setting the cost
// is one load and a branch.
//
// The recording is one file. It begins with the first event, so a process that uses no CUDA leaves
// none. The background thread writes new events each second. A child forked later records nothing.
// Any thread; no lock of Cistern's may be held but that of a source's caller.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/record/event.h"
#include "config/policy.h"

namespace cistern::shim {

enum Watch : unsigned {
  kWatchRecord = 1,   // every event goes to a file
  kWatchTallies = 2,  // sums are kept by site, range and phase
  kWatchReuse = 4,    // every reuse of a block is logged
  kWatchOrigin = 8,   // requests are treated by where they come from
  kWatchPhases = 16,  // phases are found, as graphs for arenas or by the range that was set
};

inline constinit std::atomic<unsigned> watched_for{0};

inline bool watching() { return watched_for.load(std::memory_order_relaxed) != 0; }
// For any of these.
inline bool watching(unsigned what) {
  return (watched_for.load(std::memory_order_relaxed) & what) != 0;
}

// At load, also with CISTERN_POOL=off.
void open_watch(const config::Policy& policy);
// By the object's constructor: call sites, ranges and phases, as far as they are wanted.
void start_watch(const config::Policy& policy);
// Phases alone want no more than which blocks are live.
inline bool watching_phases_alone() {
  return watched_for.load(std::memory_order_relaxed) == kWatchPhases;
}

// In a forked child, whose memory is the parent's and stays so.
void stop_watching();

// ns since the recording began, at least 1.
uint64_t record_clock();

// The system's number of the calling thread, asked once.
uint32_t thread_number();

// Adds the event. A time of 0 is now, and a thread of 0 the calling one, in its range and phase.
void record(alloc::Event event);

// The same of a synchronisation point, unless nothing was recorded since the last one.
void record_synchronised();

void close_recording();

}  // namespace cistern::shim
