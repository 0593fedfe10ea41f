// SPDX-License-Identifier: Apache-2.0
// The beginning and end of contexts. Each context that the program creates or retains gets a slot
// and a pool; both end with the context, without a CUDA call. One lock, never held around a driver
// call; any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

// The program created or retained `handle` on `device`: from now on its work counts when it is
// decided whether freed memory is clean.
void context_appeared(CUcontext handle, CUdevice device);

// cuCtxAttach adds a reference to a context, and cuCtxDetach takes one away. context_detached() is
// false if the detach may end the context.
void context_attached(CUcontext handle);
bool context_detached(CUcontext handle);

// The primary context of `device` as primary_is() was last told it, also if it has ended since;
// nullptr if the program never retained it.
CUcontext primary_of(CUdevice device);
void primary_is(CUdevice device, CUcontext handle);

// How many EndingScopes are open. While there is one, the driver may have given out anew an address
// that the index still has for the ending context.
extern constinit std::atomic<int> contexts_ending;

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
  Context* context_;
  uint64_t id_ = 0;
};

void reset_contexts_after_fork();

}  // namespace cistern::shim
