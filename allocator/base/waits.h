// SPDX-License-Identifier: Apache-2.0
// Waits for other threads: counts of those inside a scope, or holding something, and how long a
// call waits for them. Any thread; nothing allocates.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/os.h"

namespace cistern::alloc {

// The longest that a call of the program waits for other threads or for the driver, in nanoseconds.
// Pools and hooks share these values. A limit or pause that only one file uses is defined in that
// file.
struct Deadlines {
  // For actions that end by themselves, in about the time of one call.
  static constexpr uint64_t kMoment = 10'000'000;
  // For driver calls that other threads make.
  static constexpr uint64_t kOthersCalls = 1'000'000'000;
  // For a free by the driver on a busy device, including the work before it.
  static constexpr uint64_t kRelease = 2'000'000'000;
};

// Counts the threads inside a scope, so that others can see, or wait until, no thread is inside.
class CountedIn {
 public:
  explicit CountedIn(std::atomic<int>& threads) : threads_(threads) { threads_.fetch_add(1); }
  ~CountedIn() { threads_.fetch_sub(1); }
  CountedIn(const CountedIn&) = delete;
  CountedIn& operator=(const CountedIn&) = delete;

 private:
  std::atomic<int>& threads_;
};

// Counts the threads that hold memory that other threads look for. A waiting thread waits for those
// that held something when the wait began. It does not wait for later ones, since there may always
// be some.
//
// Each mover counts itself in one of two counters, the open one. A turn opens the other counter,
// and is made only once that counter is empty. So after three turns both counters have been empty
// at some time since the wait began.
class Movers {
 public:
  // The calling thread moves something for as long as this lives.
  class Moving {
   public:
    explicit Moving(Movers& movers) : counter_(movers.inside_[movers.turns_.load() % 2]) {
      counter_.fetch_add(1);
      movers.begun_.fetch_add(1);
    }
    ~Moving() { counter_.fetch_sub(1); }
    Moving(const Moving&) = delete;
    Moving& operator=(const Moving&) = delete;

   private:
    std::atomic<int>& counter_;
  };

  int now() const { return inside_[0].load() + inside_[1].load(); }
  uint64_t begun() const { return begun_.load(); }

  // Waits for the threads that hold something now, for `most_ns` at most. False if that was too
  // short.
  bool await(uint64_t most_ns) {
    const uint64_t start = turns_.load();
    return os::wait_until(
        [&] {
          if (inside_[0].load() == 0 && inside_[1].load() == 0) return true;
          turn();
          return turns_.load() - start >= 3;
        },
        most_ns);
  }

 private:
  void turn() {
    uint64_t turns = turns_.load();
    if (inside_[(turns + 1) % 2].load() == 0) turns_.compare_exchange_strong(turns, turns + 1);
  }

  std::atomic<int> inside_[2]{};
  std::atomic<uint64_t> turns_{0};
  std::atomic<uint64_t> begun_{0};
};

}  // namespace cistern::alloc
