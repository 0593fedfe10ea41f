// SPDX-License-Identifier: Apache-2.0
// The beginning and end of contexts. Each context that the program creates or retains gets a slot
// and a pool; both end with the context, without a CUDA call. In between the background thread
// tends the pools. One lock, never held around a driver call; any thread.
//
// Some contexts no hook saw created (RTLD_DEEPBIND, dlmopen, export tables). Once a hooked call of
// the program reveals one, it is *careful*:
//
//   * It has a number and no pool: the driver alone serves its memory.
//   * Its work may touch memory of every other context and pinned memory, also memory freed before
//     that still waits: nobody saw whether it has peer access, or a copy under way.
//   * No hook may see its end either, so no call of Cistern's own names it. Only a synchronisation
//     by the program shows that its work has ended. Until then, memory freed since does not become
//     clean.
//
// It is careful until its end is seen, its handle turns out to be a new context's, or the program
// gets it by a call that a hook sees (cuDevicePrimaryCtxRetain). Then it is a context like any
// other.
//
// NVIDIA's runtime has a primary context made by the driver's tables, makes it current, and only
// then retains it by a call that is seen (13.0 with driver 580, on an H100). So once a runtime has
// the tables, the first context that is made current while its device has no active primary one is
// not noticed in that call. Any other call before its retain notices it.
//
// It is looked for where the program allocates, frees, asks about memory, copies, fills, waits,
// captures, makes a context current, enables peer access, or submits after a free. A launch while
// all freed memory is marked does not look. Any thread; the caller holds no lock. If the driver
// refuses the queries, nothing is noticed.
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

// A context turned up that no hook saw made, on `device`: it gets a number, and no pool. False if
// another thread noticed it before.
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

// A context that the program named in a call which succeeded (nullptr: none); that of a stream on
// which one did.
void notice_context(CUcontext handle);
void notice_context_of(CUstream stream);

// The program made this context current: whether no hook saw it made, and NVIDIA's runtime may be
// about to retain it.
bool about_to_be_retained(CUcontext handle);

}  // namespace cistern::shim
