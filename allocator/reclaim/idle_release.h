// SPDX-License-Identifier: Apache-2.0
// The settings for idle memory (FLAGS_free_idle_memory, CISTERN_IDLE_MS, CISTERN_IDLE_KEEP_MB), and
// the ages at which it goes back to the driver.
//
// Ages are counted in ticks, an eighth of the delay. A sweep (IdleWork) gives its tick to every
// chunk that it sees wholly idle for the first time. Each use of the chunk clears that tick. So
// allocations and frees read no clock, and a chunk that a loop uses more often than the delay never
// gets old. Plain data, written once before the first pool is made; any thread.
#pragma once

#include <algorithm>
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
  bool on = false;  // chunks that were idle for the delay go back
  bool no_budget =
      false;           // the flag is set, true or false: the budget of idle memory does not apply
  bool defer = false;  // FLAGS_eager_delete_scope=false: the work of a free is done later
  uint32_t due = 0;    // the age at which a chunk was idle for the whole delay
  uint64_t tick_ns = 1;
  uint64_t keep = 0;                 // bytes that stay on each device
  uint64_t (*clock)() = os::now_ns;  // monotonic, in ns

  Tick now() const { return static_cast<Tick>(1 + clock() / tick_ns % kTicksInAll); }
};

inline IdleRelease idle_release(const config::Policy& policy) {
  constexpr uint64_t kMs = 1'000'000;
  constexpr uint64_t kTicks = 8;
  const uint64_t delay = policy.idle_ms * kMs;
  const uint64_t tick = std::max(delay / kTicks, kMs);
  // A chunk may have been seen late in its tick, and be younger than it seems: one tick more.
  const uint64_t due = delay == 0 ? 0 : (delay + tick - 1) / tick + 1;
  return {.on = policy.free_idle_memory,
          .no_budget = policy.free_idle_memory.set,
          .defer = !policy.eager_delete_scope,
          .due = static_cast<uint32_t>(due),
          .tick_ns = tick,
          .keep = policy.idle_keep_mb << 20,
          .clock = os::now_ns};
}

}  // namespace cistern::alloc
