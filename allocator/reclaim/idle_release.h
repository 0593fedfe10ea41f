// SPDX-License-Identifier: Apache-2.0
// How long idle memory stays: the settings for it (FLAGS_free_idle_memory, CISTERN_IDLE_MS,
// CISTERN_IDLE_KEEP_MB), the ages at which it goes back to the driver, and how much of it was in
// use a moment ago.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>

#include "allocator/base/os.h"
#include "allocator/reclaim/tickets.h"
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

// Ages are counted in ticks, an eighth of the delay. A sweep (IdleWork) gives its tick to every
// chunk that it sees wholly idle for the first time. Each use of the chunk clears that tick. So
// allocations and frees read no clock, and a chunk that a loop uses more often than the delay never
// gets old. Plain data, written once before the first pool is made; any thread.
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

// The peak of an amount within the last second: a program will probably want again what it held a
// moment ago. The second is divided into parts, each with its peak and the time it ended. A part
// that ended more than a second ago no longer counts. Reading the peak does not read a clock. Only
// advance() does, which is called from time to time.
//
// Any thread. If advance() was not called for long, the current part counts as if its peak had been
// at its end.
class RecentPeak {
 public:
  static constexpr uint64_t kSpanNs = 1'000'000'000;

  // The amount has grown to this.
  void note(uint64_t amount) {
    uint64_t seen = part_.load(std::memory_order_relaxed);
    while (seen < amount && !part_.compare_exchange_weak(seen, amount, std::memory_order_relaxed)) {
    }
  }

  uint64_t get() const {
    return std::max(part_.load(std::memory_order_relaxed), before_.load(std::memory_order_relaxed));
  }

  // The amount is `amount` now. If several threads call it at once, one does the work. A call with
  // an earlier time than another thread's does nothing.
  void advance(uint64_t now_ns, uint64_t amount) {
    if (!is_due(now_ns) || advancing_.exchange(true, std::memory_order_acquire)) return;
    if (is_due(now_ns)) end_part(now_ns, amount);
    advancing_.store(false, std::memory_order_release);
  }

  void reset() {
    std::fill(std::begin(ended_), std::end(ended_), Part{});
    part_.store(0, std::memory_order_relaxed);
    before_.store(0, std::memory_order_relaxed);
    began_ns_.store(0, std::memory_order_relaxed);
    advancing_.store(false, std::memory_order_relaxed);
  }

 private:
  bool is_due(uint64_t now_ns) const {
    return now_ns >= began_ns_.load(std::memory_order_relaxed) + kPartNs;
  }

  void end_part(uint64_t now_ns, uint64_t amount) {
    next_ = (next_ + 1) % kParts;
    ended_[next_] = {part_.exchange(amount, std::memory_order_relaxed), now_ns};
    began_ns_.store(now_ns, std::memory_order_relaxed);
    uint64_t most = 0;
    for (const Part& part : ended_) {
      if (now_ns - part.ended_ns <= kSpanNs) most = std::max(most, part.peak);
    }
    before_.store(most, std::memory_order_relaxed);
  }

  static constexpr uint64_t kPartNs = kSpanNs / 8;
  static constexpr int kParts = 9;  // one that ended just a second ago counts, too

  struct Part {
    uint64_t peak = 0, ended_ns = 0;
  };
  std::atomic<uint64_t> part_{0};    // since began_ns_
  std::atomic<uint64_t> before_{0};  // of the parts that count
  std::atomic<uint64_t> began_ns_{0};
  std::atomic<bool> advancing_{false};
  Part ended_[kParts] = {};
  int next_ = 0;
};

}  // namespace cistern::alloc
