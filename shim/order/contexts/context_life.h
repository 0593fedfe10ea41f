// SPDX-License-Identifier: Apache-2.0
// The beginning and end of contexts. Each context that the program creates or retains gets a slot
// and a pool; both end with the context, without a CUDA call. In between the background thread
// tends the pools. One lock, never held around a driver call; any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/cuda_api.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {

struct Context;

// The program created or retained `handle` on `device`: from now on its work counts when it is
// decided whether freed memory is clean.
void context_appeared(CUcontext handle, CUdevice device);

// A context turned up that no hook saw made, on `device` (unseen.h): it gets a number, and no pool.
// False if another thread noticed it before.
bool context_noticed(CUcontext handle, CUdevice device);

// cuCtxAttach adds a reference to a context, and cuCtxDetach takes one away. context_detached() is
// false if the detach may end the context.
void context_attached(CUcontext handle);
bool context_detached(CUcontext handle);

// Put around a driver call that may end a context (nullptr: no context): meanwhile no call of
// Cistern's touches that context. Several threads may have a scope open for one context.
class EndingScope {
 public:
  explicit EndingScope(CUcontext handle);
  ~EndingScope();
  EndingScope(const EndingScope&) = delete;
  EndingScope& operator=(const EndingScope&) = delete;
  // The driver did end the context: forgets it and its memory. If the handle has become another
  // context's meanwhile, that one stays.
  void ended();

 private:
  const NoCancel counted_;
  CUcontext handle_;
  Context* context_;  // nullptr: none, or the handle is in_crowd_
  uint64_t id_ = 0;
  bool in_crowd_ = false;
};

void reset_contexts_after_fork();

}  // namespace cistern::shim
