// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/protocol.h"

#include "allocator/base/os.h"
#include "shim/process/life.h"

namespace cistern::shim {
namespace {

constinit std::atomic<void (*)()> close_in_child{nullptr};
constinit std::atomic<int> forking{0};
// Threads inside a NoForkNow. Below zero in a child that was forked by such a thread.
constinit std::atomic<int> handling{0};

void before_fork() {
  forking.fetch_add(1);
  alloc::os::wait_until([] { return handling.load() <= 0; }, NoForkNow::kMostNs);
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
  for (bool over = true;;) {
    handling.fetch_add(1);
    if (!over || forking.load() == 0) return;
    handling.fetch_sub(1);
    over = alloc::os::wait_until([] { return forking.load() == 0; }, kMostNs);
  }
}

NoForkNow::~NoForkNow() { handling.fetch_sub(1); }

}  // namespace cistern::shim
