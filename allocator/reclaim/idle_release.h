// SPDX-License-Identifier: Apache-2.0
// The settings for idle memory (FLAGS_free_idle_memory, CISTERN_IDLE_MS, CISTERN_IDLE_KEEP_MB), and
// the ages at which it goes back to the driver.
//
// Ages are counted in ticks, an eighth of the delay. A sweep (IdleWork) gives its tick to every
// chunk that it sees wholly idle for the first time, and each use of the chunk takes it away. So
// allocations and frees read no clock, and a chunk in use by a loop faster than the delay never
// gets old. Plain data, written once before the first pool is made; any thread.
#pragma once

#include <cstdint>

#include "allocator/base/os.h"
#include "allocator/base/ticket.h"
#include "config/policy.h"

namespace cistern::alloc {

// Chunks in which nothing is live and nothing waits: their bytes, and the age of the oldest.
struct IdleChunks {
  uint64_t bytes = 0;
  uint32_t oldest = 0;

  void add(uint64_t more, uint32_t its_age) {
    bytes += more;
    if (its_age > oldest) oldest = its_age;
  }
};

struct IdleRelease {
  bool on = false;  // what was idle for the delay goes back
  bool no_budget =
      false;           // the flag is set, true or false: nothing else goes back before a shortage
  bool defer = false;  // FLAGS_eager_delete_scope=false: the work of a free is done later
  uint32_t due = 0;    // the age at which a chunk was idle for the whole delay
  uint64_t tick_ns = 1;
  uint64_t keep = 0;                 // bytes that stay on each device
  uint64_t (*clock)() = os::now_ns;  // monotonic, in ns

  Tick now() const { return static_cast<Tick>(1 + clock() / tick_ns % kTicksInAll); }
};

IdleRelease idle_release(const config::Policy& policy);

}  // namespace cistern::alloc
