// SPDX-License-Identifier: Apache-2.0
// Small numbers for threads. Under the strategy thread_local each number has a pool of its own.
// When a thread ends, the next thread that needs a number gets its number and pool. Lock-free; any
// thread.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

namespace cistern::alloc {

inline constexpr unsigned kMostThreads = 256;

class ThreadNumbers {
 public:
  // The number that all threads share once the others are taken. It is never released.
  static constexpr unsigned kCommon = kMostThreads - 1;

  // Takes the lowest free number, or kCommon.
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
