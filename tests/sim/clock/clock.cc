// SPDX-License-Identifier: Apache-2.0
// The clock that tests stop and move (simcuda/clock.h says what waits do meanwhile).
//
// A wait looks at the clock again every millisecond of real time, so that nobody has to wake it and
// no move can be missed. Nothing here allocates: callers may be inside malloc. Any thread; a forked
// child has the clock as it was, and none of the waiting threads.
#include "tests/sim/include/simcuda/clock.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>

#include "tests/sim/clock/clock.h"

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kLookNs = 1 * kMs;
constexpr int kMostOwn = 8;

struct Own {
  pid_t thread = 0;  // 0: none
  const uint32_t* word = nullptr;
  uint32_t expected = 0;
  uint64_t until_ns = 0;  // 0: does not wait
};

struct Clock {
  bool stands = false;
  uint64_t at_ns = 0;     // while it stands
  uint64_t ahead_ns = 0;  // of the system's, while it runs; modulo 2^64
  uint64_t look_ns = 0;   // that a look takes while it stands
  uint64_t waits = 0;
  int beginning = 0;  // threads of Cistern's own that did not wait yet
  Own own[kMostOwn];
};

constinit std::mutex g_mutex;
constinit Clock g_clock;

uint64_t system_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// The caller holds the mutex.
uint64_t now_ns() { return g_clock.stands ? g_clock.at_ns : system_ns() + g_clock.ahead_ns; }

void move(uint64_t ns) { (g_clock.stands ? g_clock.at_ns : g_clock.ahead_ns) += ns; }

// An error number: 0 woken, ETIMEDOUT the time passed, EAGAIN the word is another one, EINTR a
// signal.
int sleep(uint32_t* word, uint32_t expected, uint64_t ns) {
  const timespec limit = {.tv_sec = static_cast<time_t>(ns / 1'000'000'000),
                          .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
  const long woken = syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &limit, nullptr, 0);
  return woken == 0 ? 0 : errno;
}

bool is_own() {
  char name[16] = "";
  prctl(PR_GET_NAME, name);
  return std::strcmp(name, "cistern") == 0;
}

pid_t this_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

bool lives(pid_t thread) { return syscall(SYS_tgkill, getpid(), thread, 0) == 0; }

// The caller's place among Cistern's own threads; the caller holds the mutex.
Own& place_of(pid_t thread) {
  for (Own& each : g_clock.own) {
    if (each.thread == thread) return each;
  }
  for (Own& each : g_clock.own) {
    if (each.thread != 0 && lives(each.thread)) continue;
    if (g_clock.beginning > 0) --g_clock.beginning;
    each = {.thread = thread};
    return each;
  }
  abort();
}

bool settled(const Own& own) {
  if (own.thread == 0 || !lives(own.thread)) return true;
  return own.until_ns > now_ns() &&
         (own.word == nullptr || __atomic_load_n(own.word, __ATOMIC_SEQ_CST) == own.expected);
}

bool all_settled() {
  const std::lock_guard lock(g_mutex);
  return g_clock.beginning == 0 &&
         std::all_of(std::begin(g_clock.own), std::end(g_clock.own), settled);
}

enum class Waiter { program, own, device };

void wait(uint32_t* word, uint32_t expected, uint64_t until_ns, Waiter waiter) {
  uint32_t nothing = 0;
  uint32_t* const at = word != nullptr ? word : &nothing;
  if (word == nullptr) expected = nothing;
  while (true) {
    uint64_t left = 0;
    {
      const std::lock_guard lock(g_mutex);
      const uint64_t now = now_ns();
      if (now >= until_ns) return;
      left = std::min(until_ns - now, kLookNs);
    }
    const int why = sleep(at, expected, left);
    if (why == 0 || why == EAGAIN) return;
    if (why != ETIMEDOUT || waiter != Waiter::program) continue;
    const std::lock_guard lock(g_mutex);
    if (g_clock.stands) move(left);
  }
}

// In the child only the thread that forked lives.
struct Forks {
  Forks() {
    pthread_atfork([] { g_mutex.lock(); }, [] { g_mutex.unlock(); },
                   [] {
                     g_clock.beginning = 0;
                     for (Own& each : g_clock.own) each = {};
                     g_mutex.unlock();
                   });
  }
} g_forks;

}  // namespace

void test_clock::own_thread_begins() {
  const std::lock_guard lock(g_mutex);
  for (Own& each : g_clock.own) {  // the new thread may get the number of one that ended
    if (each.thread != 0 && !lives(each.thread)) each = {};
  }
  ++g_clock.beginning;
}

void test_clock::own_thread_failed() {
  const std::lock_guard lock(g_mutex);
  --g_clock.beginning;
}

extern "C" {

uint64_t cistern_clock_now_ns() {
  const std::lock_guard lock(g_mutex);
  const uint64_t now = now_ns();
  if (g_clock.stands) move(g_clock.look_ns);
  return now;
}

void cistern_clock_wait(uint32_t* word, uint32_t expected, uint64_t ns) {
  const bool own = is_own();
  const pid_t thread = own ? this_thread() : 0;
  uint64_t until_ns = 0;
  {
    const std::lock_guard lock(g_mutex);
    const uint64_t now = now_ns();
    ++g_clock.waits;
    until_ns = now + std::min(ns, UINT64_MAX - now);
    if (own) {
      Own& place = place_of(thread);
      place.word = word;
      place.expected = expected;
      place.until_ns = until_ns;
    }
  }
  wait(word, expected, until_ns, own ? Waiter::own : Waiter::program);
  if (!own) return;
  const std::lock_guard lock(g_mutex);
  place_of(thread).until_ns = 0;
}

void cistern_clock_spend(uint64_t ns) {
  if (!is_own()) {
    const std::lock_guard lock(g_mutex);
    if (g_clock.stands) return move(ns);
  }
  cistern_clock_wait(nullptr, 0, ns);
}

void cistern_clock_reach(uint64_t time_ns) { wait(nullptr, 0, time_ns, Waiter::device); }

void test_clock_stop() {
  const std::lock_guard lock(g_mutex);
  g_clock.at_ns = now_ns();
  g_clock.stands = true;
}

void test_clock_move(uint64_t ns) {
  const std::lock_guard lock(g_mutex);
  move(ns);
}

void test_clock_let_go() {
  const std::lock_guard lock(g_mutex);
  g_clock.ahead_ns = now_ns() - system_ns();
  g_clock.stands = false;
  g_clock.look_ns = 0;
}

void test_clock_look_takes(uint64_t ns) {
  const std::lock_guard lock(g_mutex);
  g_clock.look_ns = ns;
}

uint64_t test_clock_waits() {
  const std::lock_guard lock(g_mutex);
  return g_clock.waits;
}

void test_clock_settle() {
  while (!all_settled()) usleep(200);
}

}  // extern "C"
