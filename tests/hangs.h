// SPDX-License-Identifier: Apache-2.0
// How long a program may run, or something take to come true, before a test says that it hangs.
//
// No test is judged by the clock: this is far beyond what any of them takes on a machine that is
// busy, slow or has one core, under a sanitizer, too. It is below ctest's own limit for a whole
// test (CMakeLists.txt), so that the test can say what hangs. Python's is HANGS_S of hangs.py.
#pragma once

#include <time.h>
#include <unistd.h>

inline constexpr unsigned kHangsS = 900;

// Waits for the condition, which something else brings about. False if it hangs: after kHangsS.
template <typename Condition>
bool comes_true(Condition condition) {
  const auto seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
  };
  for (const auto end = seconds() + kHangsS; !condition(); usleep(1000)) {
    if (seconds() > end) return false;
  }
  return true;
}
