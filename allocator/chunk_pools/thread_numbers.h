// SPDX-License-Identifier: Apache-2.0
// Small numbers for threads, each of which has a pool of its own under the strategy thread_local.
// The number of a thread that ended goes to the next one that asks, and the pool with it.
// Lock-free; any thread.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

namespace cistern::alloc {

inline constexpr unsigned kMostThreads = 256;

class ThreadNumbers {
 public:
  // Shared by all threads beyond the others, and never released.
  static constexpr unsigned kCommon = kMostThreads - 1;

  // The lowest number that nobody has.
  unsigned acquire() {
    for (unsigned word = 0; word < kWords; ++word) {
      uint64_t seen = taken_[word].load(std::memory_order_relaxed);
      while (~seen != 0) {
        const auto bit = static_cast<unsigned>(std::countr_one(seen));
        const unsigned number = word * 64 + bit;
        if (number == kCommon) return kCommon;
        if (taken_[word].compare_exchange_weak(seen, seen | uint64_t{1} << bit,
                                               std::memory_order_acq_rel)) {
          return number;
        }
      }
    }
    return kCommon;
  }

  void release(unsigned number) {
    if (number == kCommon) return;
    taken_[number / 64].fetch_and(~(uint64_t{1} << number % 64), std::memory_order_acq_rel);
  }

 private:
  static constexpr unsigned kWords = kMostThreads / 64;

  std::atomic<uint64_t> taken_[kWords] = {};
};

}  // namespace cistern::alloc
