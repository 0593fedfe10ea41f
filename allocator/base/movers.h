// SPDX-License-Identifier: Apache-2.0
// Counts the threads that hold memory that other threads look for. A waiting thread waits for those
// that held something when the wait began. It does not wait for later ones, since there may always
// be some. Any thread; all of it is atomic and nothing allocates.
//
// Each mover counts itself in one of two counters, the open one. A turn opens the other counter,
// and is made only once that counter is empty. So after three turns both counters have been empty
// at some time since the wait began.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/os.h"

namespace cistern::alloc {

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
