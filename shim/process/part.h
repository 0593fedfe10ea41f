// SPDX-License-Identifier: Apache-2.0
// What the parts of the object do in the life of the process. Includes run down the rooms of shim/
// only, and this room is the lowest, so it reaches the others through this table. The highest room
// fills it in: hooks/parts.cc.
#pragma once

#include <span>

#include "config/policy.h"

namespace cistern::shim {

// A null member means: nothing to do.
struct Part {
  // The settings were read and hold: before main, and before any other function of the part. Makes
  // no CUDA call.
  void (*at_load)(const config::Policy& policy) = nullptr;
  // In a child forked after cuInit, whose only thread is the caller. Locks may be held by threads
  // that do not exist here; the driver does not work.
  void (*in_child)() = nullptr;
  // The process ends in an orderly way and used CUDA. Makes no CUDA call.
  void (*at_exit)() = nullptr;
};

// In the order in which they are told.
std::span<const Part> parts();

}  // namespace cistern::shim
