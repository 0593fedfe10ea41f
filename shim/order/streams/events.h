// SPDX-License-Identifier: Apache-2.0
// Events that Cistern records for itself: the right context while one is created or recorded, and
// its state. Each function reaches the driver, so the caller holds a GatePass (capture_gate.h). Any
// thread.
#pragma once

#include "allocator/base/source.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

// Makes a context current to the calling thread for a scope; afterwards the thread's stack of
// contexts is as before. False when the driver refuses.
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
