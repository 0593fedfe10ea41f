// SPDX-License-Identifier: Apache-2.0
// What stands around the parts of the shim that have unit tests: a driver whose functions the test
// chooses, and the few answers they ask of the rest of the object. Each test begins with
// reset_fakes(), and changes them while no other thread is at work.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "config/policy.h"
#include "shim/entry/driver.h"

namespace cistern::test {

struct FakeShim {
  shim::Driver driver;  // functions that the test does not name are null
  config::Policy policy;
  bool active;
  bool may_call;      // of the calling thread, as in shim/process/background.h
  CUcontext current;  // what current_handle() and cuCtxGetCurrent answer
  // release_idle_memory(): whether anything was released, by default never; and how often it was
  // asked.
  std::function<bool(CUdevice)> release_idle;
  std::atomic<int> releases;
  std::string logged;  // the last line at level info
};

FakeShim& fakes();

// All as at the start: active, complete, no functions but cuCtxGetCurrent, the default policy.
void reset_fakes();

}  // namespace cistern::test
