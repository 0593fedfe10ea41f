// SPDX-License-Identifier: Apache-2.0
// The clock of tests/sim/include/simcuda/clock.h, which is linked into the unit tests.
#pragma once

#include <sys/prctl.h>

#include <cstdint>
#include <thread>

#include "tests/sim/include/simcuda/clock.h"

namespace cistern::test {

inline constexpr uint64_t kMs = 1'000'000;

// Stands while it lives: what takes long is not late.
class StoppedClock {
 public:
  StoppedClock() { test_clock_stop(); }
  ~StoppedClock() { test_clock_let_go(); }
  StoppedClock(const StoppedClock&) = delete;
  StoppedClock& operator=(const StoppedClock&) = delete;
  static void move_ns(uint64_t ns) { test_clock_move(ns); }
  static uint64_t now_ns() { return cistern_clock_now_ns(); }
  // From now on, each look at the clock.
  static void look_takes(uint64_t ns) { test_clock_look_takes(ns); }
};

// The calling thread's waits do not move the clock any more: while it stands, they do not end
// because of the time.
inline void wait_for_the_clock() { prctl(PR_SET_NAME, "cistern"); }

// Until more than so many waits for a time have begun in all, or `over()`.
template <typename Over>
void until_someone_waits(uint64_t waits, Over over) {
  while (test_clock_waits() <= waits && !over()) std::this_thread::yield();
}
inline void until_someone_waits(uint64_t waits) {
  until_someone_waits(waits, [] { return false; });
}

}  // namespace cistern::test
