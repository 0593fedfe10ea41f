// SPDX-License-Identifier: Apache-2.0
// What a child finds that was forked while another thread held locks.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/hangs.h"

namespace cistern::test {

// Forks again and again while another thread does `busy`; the child does `in_child` and ends. How
// many children hung, or found something wrong. A lock
// that is held half of the time is held in one of these forks for sure.
inline int children_that_fail(const std::function<void()>& busy,
                              const std::function<bool()>& in_child) {
  constexpr int kForks = 24;
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    while (!stop) busy();
  });
  int failed = 0;
  for (int i = 0; i < kForks && failed == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kHangsS);
      _exit(in_child() ? 0 : 1);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) ++failed;
  }
  stop = true;
  worker.join();
  return failed;
}

}  // namespace cistern::test
