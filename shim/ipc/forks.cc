// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/protocol.h"

#include <signal.h>

#include <algorithm>

#include "allocator/base/os.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

// Forks and steps each wait until the other side is over. They wait at most kMostNs. Then what is
// inside is stuck: nobody waits for that side again until it is empty.
class Side {
 public:
  void enter() { inside_.fetch_add(1); }
  void leave() {
    if (inside_.fetch_sub(1) <= 1) stuck_.store(false);
  }
  bool over() const { return inside_.load() <= 0 || stuck_.load(); }
  void await_over(uint64_t until_ns) {
    const uint64_t now = alloc::os::now_ns();
    const uint64_t left_ns = until_ns - std::min(now, until_ns);
    if (alloc::os::wait_until([this] { return over(); }, left_ns)) return;
    stuck_.store(true);
    if (inside_.load() <= 0) stuck_.store(false);  // the last one left meanwhile
  }
  void reset() {
    inside_.store(0);
    stuck_.store(false);
  }

 private:
  std::atomic<int> inside_{0};  // below 0: a child was forked inside a fork handler
  std::atomic<bool> stuck_{false};
};

constinit Side forks, steps;
constinit std::atomic<void (*)()> close_in_child{nullptr};

// Blocks signals and returns the mask from before. The kernel ends a process that blocks a signal
// which its own instruction raises; a sandbox may answer system calls by SIGSYS (seccomp(2)).
sigset_t block_signals() {
  sigset_t all, before;
  sigfillset(&all);
  for (const int own : {SIGSYS, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, own);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  return before;
}

uint64_t latest_end() { return alloc::os::now_ns() + NoForkNow::kMostNs; }

void before_fork() {
  forks.enter();
  if (!steps.over()) steps.await_over(latest_end());
}

void after_fork() { forks.leave(); }

void in_child() {
  forks.reset();
  steps.reset();
  close_in_child.load()();
}

}  // namespace

void watch_forks(void (*close)()) {
  if (close_in_child.exchange(close) == nullptr) at_fork(before_fork, after_fork, in_child);
}

// Either this thread sees the fork, or the fork sees this thread.
NoForkNow::NoForkNow() {
  for (uint64_t end_ns = 0;;) {
    signals_ = block_signals();
    steps.enter();
    if (forks.over()) return;
    leave();
    if (end_ns == 0) end_ns = latest_end();
    forks.await_over(end_ns);
  }
}

// Leaves before it restores the signals: a signal handler may fork.
void NoForkNow::leave() {
  steps.leave();
  pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
}

}  // namespace cistern::shim
