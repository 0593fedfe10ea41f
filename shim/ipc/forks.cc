// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/protocol.h"

#include <signal.h>

#include "allocator/base/os.h"
#include "shim/process/life.h"

namespace cistern::shim {
namespace {

constinit std::atomic<void (*)()> close_in_child{nullptr};
constinit std::atomic<int> forking{0};
constinit std::atomic<int> handling{0};  // threads inside a NoForkNow

void before_fork() {
  forking.fetch_add(1);
  alloc::os::wait_until([] { return handling.load() == 0; }, NoForkNow::kMostNs);
}

void after_fork() { forking.fetch_sub(1); }

void in_child() {
  forking.store(0);
  handling.store(0);
  close_in_child.load()();
}

}  // namespace

void watch_forks(void (*close)()) {
  if (close_in_child.exchange(close) == nullptr) at_fork(before_fork, after_fork, in_child);
}

// Either this thread sees the fork, or the fork sees this thread.
NoForkNow::NoForkNow() {
  sigset_t all;
  sigfillset(&all);
  for (bool in_time = true;;) {
    pthread_sigmask(SIG_SETMASK, &all, &signals_);
    handling.fetch_add(1);
    if (!in_time || forking.load() == 0) return;
    leave();
    in_time = alloc::os::wait_until([] { return forking.load() == 0; }, kMostNs);
  }
}

void NoForkNow::leave() {
  handling.fetch_sub(1);
  pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
}

}  // namespace cistern::shim
