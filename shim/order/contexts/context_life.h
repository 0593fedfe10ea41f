// SPDX-License-Identifier: Apache-2.0
// Contexts coming and going: a slot and a pool for each that the program creates or retains, and
// the end of both with the context, without a CUDA call. One lock, never held around a driver call;
// any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

// The program created or retained `handle` on `device`: from now on its work counts when it is
// decided whether freed memory is clean.
void context_appeared(CUcontext handle, CUdevice device);

// cuCtxAttach and cuCtxDetach count; context_detached() says whether the context lives on.
void context_attached(CUcontext handle);
bool context_detached(CUcontext handle);

// The context `device` has as its primary one, as far as the program retained it; else nullptr.
CUcontext primary_of(CUdevice device);
void primary_is(CUdevice device, CUcontext handle);

// Whether any EndingScope is open: then the driver may have given away what the index still knows.
extern constinit std::atomic<int> contexts_ending;

// Around a driver call that may end a context (nullptr: no context): meanwhile nothing of ours
// touches it. Several threads may do so with one context; what ends is the one that had the handle
// at the beginning.
class EndingScope {
 public:
  explicit EndingScope(CUcontext handle);
  ~EndingScope();
  EndingScope(const EndingScope&) = delete;
  EndingScope& operator=(const EndingScope&) = delete;
  // The driver did end it: it is forgotten, and its memory with it.
  void ended();

 private:
  Context* context_;
  uint64_t id_ = 0;
};

void reset_contexts_after_fork();

}  // namespace cistern::shim
