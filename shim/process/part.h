// SPDX-License-Identifier: Apache-2.0
// The functions of the object's parts at load, in a forked child and at exit. Between the folders
// of shim/ includes go one way only, and the other folders lie above process/. So it calls them
// through this table, which the topmost folder fills in (hooks/parts.cc).
#pragma once

#include <span>

#include "config/policy.h"

namespace cistern::shim {

// A null member means: nothing to do.
struct Part {
  // The settings were read and hold: before main, and before any other function of the part. Makes
  // no CUDA call.
  void (*at_load)(const config::Policy& policy) = nullptr;
  // The same by the object's constructor, which may come after other functions of the part: a call
  // of another library's constructor. May allocate, which at_load may not.
  void (*at_start)(const config::Policy& policy) = nullptr;
  // Instead of at_start, where the settings are bad and the part does nothing: it may have to tell
  // so (life.h), once the process comes to use it.
  void (*at_bad_start)() = nullptr;
  // With the program's first cuInit. May allocate and start threads.
  void (*at_cuda_start)(const config::Policy& policy) = nullptr;
  // In a child forked after cuInit, whose only thread is the caller. Locks may be held by threads
  // that do not exist here; the driver does not work.
  void (*in_child)() = nullptr;
  // The process ends in an orderly way, and the driver still answers: see end_before_the_driver()
  // in life.h.
  void (*before_driver_ends)() = nullptr;
  // The process ends in an orderly way and used CUDA; the driver has ended. Makes no CUDA call.
  void (*at_exit)() = nullptr;
  // The same of one that did not use CUDA, or was forked from one that did.
  void (*at_exit_without_cuda)() = nullptr;
  // All of these also with CISTERN_POOL=off: the part needs no pools.
  bool without_pools = false;
};

// In the order in which they are called.
std::span<const Part> parts();

}  // namespace cistern::shim
