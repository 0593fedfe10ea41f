// SPDX-License-Identifier: Apache-2.0
// For programs that may hang, or must not wait. Nothing is judged by the clock: how long something
// takes is the machine's affair.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/hangs.h"

// A process that still runs after kHangsS says so and ends with status 3. Each process asks for
// itself.
inline void end_if_it_hangs() {
  signal(SIGALRM, [](int) {
    constexpr char kText[] = "hangs\n";
    static_cast<void>(!write(STDOUT_FILENO, kText, sizeof kText - 1));
    _exit(3);
  });
  alarm(kHangsS);
}

// How often this thread has given up its processor by itself since this was made. A wait of the
// object asks again and again, and naps in between, mostly for a millisecond at most. So what
// waited in vain for a second has hundreds of naps behind it, and what did not wait has a few:
// those in which the device's own threads did what was to be done. On a slow machine each nap is
// longer and there are fewer: a wait can stay unseen there, and none is seen that was not.
class Naps {
 public:
  bool few(long most = 500) const { return count() - before_ < most; }

 private:
  static long count() {
    rusage used{};
    getrusage(RUSAGE_THREAD, &used);
    return used.ru_nvcsw;
  }

  const long before_ = count();
};

// Returns once another thread of the process sleeps in the call that it is about to make after it
// has told its number (gettid()), or has ended. It was seen asleep five times in a row, as it is in
// a wait; had it slept on the way there, the test would see another order of the two, and nothing
// wrong.
inline void await_sleep(const std::atomic<pid_t>& thread) {
  for (int asleep = 0; asleep < 5; usleep(1000)) {
    if (thread == 0) continue;
    char path[64], name[32], state = 0;
    std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread.load());
    std::FILE* file = std::fopen(path, "r");
    if (file == nullptr) return;  // it has ended
    const bool read = std::fscanf(file, "%*d %31s %c", name, &state) == 2;
    asleep = read && state == 'S' ? asleep + 1 : 0;
    std::fclose(file);
  }
}

// Sets the flag as soon as the thread that made this waits for something: for work that another
// thread's wait is to find under way, and to outlast.
class OnceThisWaits {
 public:
  explicit OnceThisWaits(std::atomic<bool>* flag)
      : thread_([this, flag] {
          await_sleep(here_);
          *flag = true;
        }) {}
  ~OnceThisWaits() { thread_.join(); }

 private:
  const std::atomic<pid_t> here_{gettid()};
  std::thread thread_;
};
