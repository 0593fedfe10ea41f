// SPDX-License-Identifier: Apache-2.0
// The peak of an amount within the last second: a program will probably want again what it held a
// moment ago. The second is divided into parts, each with its peak and the time it ended. A part
// that ended more than a second ago no longer counts. Reading the peak does not read a clock. Only
// advance() does, which is called from time to time.
//
// Any thread. If advance() was not called for long, the current part counts as if its peak had been
// at its end.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>

namespace cistern::alloc {

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
