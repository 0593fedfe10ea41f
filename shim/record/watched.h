// SPDX-License-Identifier: Apache-2.0
// Whether anything observes the program's allocations: a recording, the report by site, the log of
// reuse, or settings for some call sites. Decided at load. The hooks check it first, so without
// such a setting the cost is one load and a branch.
#pragma once

#include <atomic>

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

}  // namespace cistern::shim
