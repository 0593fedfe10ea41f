// SPDX-License-Identifier: Apache-2.0
// Separates threads that move units from a thread that changes access to mapped memory, because
// nobody knows the next address of a unit that is being moved. Several threads may move units at
// the same time. A thread that changes access waits for them and keeps new ones out. Both sides
// wait only for driver calls of the other. A mover enters once, since a second entry could wait for
// itself. Any thread; all state is atomic.
#pragma once

#include <atomic>

#include "allocator/base/os.h"

namespace cistern::alloc {

class MoveGate {
 public:
  class Moving {
   public:
    explicit Moving(MoveGate& gate) : gate_(gate) {
      while (!gate_.enter()) os::wait_while([&] { return gate_.looking_.load() != 0; });
    }
    ~Moving() { gate_.moving_.fetch_sub(1); }
    Moving(const Moving&) = delete;
    Moving& operator=(const Moving&) = delete;

   private:
    MoveGate& gate_;
  };

  class Looking {
   public:
    explicit Looking(MoveGate& gate) : gate_(gate) {
      gate_.looking_.fetch_add(1);
      os::wait_while([&] { return gate_.moving_.load() != 0; });
    }
    ~Looking() { gate_.looking_.fetch_sub(1); }
    Looking(const Looking&) = delete;
    Looking& operator=(const Looking&) = delete;

   private:
    MoveGate& gate_;
  };

  void reset_after_fork() {
    moving_.store(0);
    looking_.store(0);
  }

 private:
  bool enter() {
    moving_.fetch_add(1);
    if (looking_.load() == 0) return true;
    moving_.fetch_sub(1);
    return false;
  }

  std::atomic<int> moving_{0}, looking_{0};
};

}  // namespace cistern::alloc
