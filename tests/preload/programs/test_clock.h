// SPDX-License-Identifier: Apache-2.0
// For programs that move the time by which Cistern and the simulated devices live. Their
// expectations preload libtestclock.so in both runs; what the clock does is said in the header
// below. Without the library the program ends with status 2.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "../../sim/include/simcuda/clock.h"

namespace test_clock {

template <typename Function>
Function* find(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) {
    std::printf("no test clock: the expectation needs a line \"preload libtestclock.so\"\n");
    std::exit(2);
  }
  return reinterpret_cast<Function*>(found);
}

inline constexpr uint64_t kNsPerMs = 1'000'000;

inline void stop() { find<void()>("test_clock_stop")(); }
inline void let_go() { find<void()>("test_clock_let_go")(); }
inline void settle() { find<void()>("test_clock_settle")(); }

// Moves the clock, and no more: whoever is due has just begun.
inline void move_ns(uint64_t ns) { find<void(uint64_t)>("test_clock_move")(ns); }
inline void move_ms(uint64_t ms) { move_ns(ms * kNsPerMs); }

// Moves it by `ms` in so many steps; after each, Cistern has done in the background what was due.
inline void live_through(uint64_t ms, uint64_t steps) {
  settle();
  for (uint64_t i = 0; i < steps; ++i) {
    move_ns(ms * kNsPerMs / steps);
    settle();
  }
}

// Moves it on until the condition holds. The devices' threads may need real time for that, however
// much, so there is no limit but the one of the whole test.
template <typename Condition>
void live_until(Condition condition, uint64_t step_ms = 5) {
  while (!condition()) {
    live_through(step_ms, 1);
    usleep(200);
  }
}

// Stops the clock, and moves it to `ms` before one of the moments that are `each_ms` apart.
inline void stop_before(uint64_t ms, uint64_t each_ms) {
  stop();
  const uint64_t each_ns = each_ms * kNsPerMs, now_ns = find<uint64_t()>("cistern_clock_now_ns")();
  move_ns(2 * each_ns - ms * kNsPerMs - now_ns % each_ns);
}

}  // namespace test_clock
