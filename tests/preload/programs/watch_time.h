// SPDX-License-Identifier: Apache-2.0
// For programs that may hang, or be slow: an end after some seconds, and clocks.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

// The process ends with status 3, and says so, if it still runs then.
inline void end_after(unsigned seconds) {
  signal(SIGALRM, [](int) {
    constexpr char kText[] = "hangs\n";
    static_cast<void>(!write(STDOUT_FILENO, kText, sizeof kText - 1));
    _exit(3);
  });
  alarm(seconds);
}

// Seconds since it was made.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};
