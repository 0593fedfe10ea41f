// SPDX-License-Identifier: Apache-2.0
#include "shim/order/reaper.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "allocator/base/os.h"
#include "shim/order/context.h"
#include "shim/process/log.h"
#include "shim/process/thread.h"

namespace cistern::shim {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kGatherNs = 1 * kMs;  // a burst of frees is one piece of work
constexpr uint64_t kStopNs = 100 * kMs;
constexpr int kQuietRounds = 8;            // then the thread ends
constexpr size_t kStackBytes = 256 << 10;  // address space, until it is touched

enum class State : int { none, runs, cannot };
constinit std::atomic<State> state{State::none};
constinit std::atomic<int> rounds{0};     // under way: driver calls may be
constinit std::atomic<bool> over{false};  // the process ends, or is a forked child
constinit std::atomic<uint32_t> bell{0};
constinit sigset_t signals_of_program{};

void ring() {
  bell.fetch_add(1);
  alloc::os::futex_wake(reinterpret_cast<uint32_t*>(&bell), 1);
}

// Every pool once; true if there will be more to do.
bool round() {
  bool more = false;
  rounds.fetch_add(1);
  for_each_context([&](Context& context) {
    if (over.load()) return;
    context.visitors.fetch_add(1);
    const bool there = context.handle.load() != nullptr;
    const bool closing = there && context.source.closing();
    more |= closing || (there && context.pool.work_in_background());
    context.visitors.fetch_sub(1);
  });
  rounds.fetch_sub(1);
  return more;
}

// A tick, but short enough to notice the end of the program's threads.
uint64_t pause_ns() { return std::clamp(shared().idle.tick_ns, 10 * kMs, 250 * kMs); }

// main() ended by pthread_exit, which leaves a task without a program file, and every other thread
// of the program has ended since. No file is opened: the program may count on the number of its
// next one.
bool alone() {
  struct stat tasks;
  constexpr nlink_t kTwo = 2 + 2;  // a folder's own links, and one for each task
  if (stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink != kTwo) return false;
  char c;
  return readlink("/proc/self/exe", &c, 1) < 0 && errno == ENOENT &&
         readlink("/proc/thread-self/exe", &c, 1) > 0;
}

// What is freed from now on starts another thread; what was freed before must not be forgotten. The
// round takes the lock of each pool: a free that had it before is seen, and one that has it later
// sees that there is no thread.
bool leave() {
  state.store(State::none);
  State expected = State::none;
  return !round() || !state.compare_exchange_strong(expected, State::runs);
}

// The C library lets the last thread run the program's exit handlers.
void become_the_last_of_the_program() {
  state.store(State::none);
  this_thread.background = false;
  pthread_sigmask(SIG_SETMASK, &signals_of_program, nullptr);
}

void* run(void*) {
  prctl(PR_SET_NAME, "cistern");
  this_thread.background = true;
  for (int quiet = 0; !over.load() && (quiet < kQuietRounds || !leave());) {
    const uint32_t heard = bell.load();
    quiet = round() ? 0 : quiet + 1;
    if (alone()) {
      become_the_last_of_the_program();
      break;
    }
    alloc::os::futex_wait(reinterpret_cast<uint32_t*>(&bell), heard, pause_ns());
    if (bell.load() == heard) continue;
    quiet = 0;
    if (!over.load()) alloc::os::sleep_ns(kGatherNs);
  }
  return nullptr;
}

// The thread inherits the mask. A stack too small for the thread-local storage of the program's
// libraries is refused: then it is one like the program's.
int create() {
  sigset_t all;
  sigfillset(&all);
  pthread_attr_t attributes;
  if (const int code = pthread_attr_init(&attributes); code != 0) return code;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  size_t usual;
  pthread_attr_getstacksize(&attributes, &usual);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_sigmask(SIG_SETMASK, &all, &signals_of_program);
  pthread_t thread;
  int code = pthread_create(&thread, &attributes, run, nullptr);
  if (code == EINVAL) {
    pthread_attr_setstacksize(&attributes, usual);
    code = pthread_create(&thread, &attributes, run, nullptr);
  }
  pthread_sigmask(SIG_SETMASK, &signals_of_program, nullptr);
  pthread_attr_destroy(&attributes);
  return code;
}

// Exit handlers run in reverse order: this one before those of the driver and of its libraries,
// which shut it down, and they before the object's own destructor.
void stop_before_the_driver_does() {
  static constinit std::atomic<bool> arranged{false};
  if (!arranged.exchange(true)) on_exit([](int, void*) { stop_reaper(); }, nullptr);
}

bool start() {
  const int saved = errno;
  stop_before_the_driver_does();
  const int code = create();
  errno = saved;
  if (code == 0) return true;
  state.store(State::cannot);
  log(config::LogLevel::kInfo,
      "no thread could be created for idle memory: %s; the program's own calls see to it",
      strerrordesc_np(code));
  return false;
}

}  // namespace

bool attend(bool now) {
  if (over.load()) return false;
  State seen = state.load();
  if (seen == State::none && state.compare_exchange_strong(seen, State::runs)) return start();
  if (seen == State::cannot) return false;
  if (now) ring();
  return true;
}

bool in_background() { return this_thread.background; }

bool may_call() { return !this_thread.background || !over.load(); }

void stop_reaper() {
  over.store(true);
  if (state.load() == State::runs) ring();
  alloc::os::wait_until([] { return rounds.load() == 0; }, kStopNs);
}

void reset_reaper_after_fork() {
  over.store(true);
  rounds.store(0);
  state.store(State::cannot);
}

}  // namespace cistern::shim
