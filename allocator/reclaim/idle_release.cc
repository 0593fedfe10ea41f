// SPDX-License-Identifier: Apache-2.0
#include "allocator/reclaim/idle_release.h"

#include <algorithm>

namespace cistern::alloc {

IdleRelease idle_release(const config::Policy& policy) {
  constexpr uint64_t kMs = 1'000'000;
  constexpr uint64_t kTicks = 8;
  const uint64_t delay = policy.idle_ms * kMs;
  const uint64_t tick = std::max(delay / kTicks, kMs);
  // A chunk that was seen late in its tick is that much younger than it seems.
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
