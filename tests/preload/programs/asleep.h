// SPDX-License-Identifier: Apache-2.0
// For programs in which one thread acts while another waits, in the driver say.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdio>

// A thread, and what it does between `begins()` and `ends()`.
class Waiter {
 public:
  void begins() {
    ended_ = false;
    thread_ = gettid();
  }
  void ends() { ended_ = true; }

  // Until it sleeps for as long as nothing wakes it, as it seems to the system, or has ended what
  // it began. A thread that could run but gets no processor does not seem asleep, so this takes
  // longer on a slow machine. A short sleep may be taken for a long one: then less is tested.
  void until_asleep() const {
    for (int seen = 0; seen < 10 && !ended_; usleep(500)) seen = sleeps() ? seen + 1 : 0;
  }

 private:
  bool sleeps() const {
    const pid_t thread = thread_;
    if (thread == 0) return false;
    char path[64];
    std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    std::FILE* file = std::fopen(path, "r");
    if (file == nullptr) return false;
    char state = '?';
    const int found = std::fscanf(file, "%*d %*[^)]) %c", &state);
    std::fclose(file);
    return found == 1 && state == 'S';
  }

  std::atomic<pid_t> thread_{0};
  std::atomic<bool> ended_{false};
};
