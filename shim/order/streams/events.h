// SPDX-License-Identifier: Apache-2.0
// What the events of our own need: the right context while one is created or recorded, and their
// state. Each call here reaches the driver and is made under the capture gate. Any thread.
#pragma once

#include "allocator/base/source.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

// A context is current to the calling thread for a scope; after it the program finds its stack of
// contexts as it was. False when the driver refuses.
class ContextScope {
 public:
  explicit ContextScope(CUcontext context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  explicit operator bool() const { return current_; }

 private:
  bool current_;
  bool pushed_ = false;
};

// An event belongs to the context that is current when it is created.
bool create_event(CUevent* event);

alloc::MarkState state_of(CUevent event, CUcontext context);

}  // namespace cistern::shim
