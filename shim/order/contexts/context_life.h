// SPDX-License-Identifier: Apache-2.0
// The life of contexts: their beginning and end, contexts whose creation no hook saw, and
// synchronisations. Each context that the program creates or retains gets a slot and a pool; both
// end with the context, without a CUDA call. In between the background thread tends the pools. One
// lock, never held around a driver call. Any thread.
//
// No hook sees how some contexts are created (RTLD_DEEPBIND, dlmopen, export tables). Once a hooked
// call of the program reveals one, it is *careful*:
//
//   * It has a number and no pool: the driver alone serves its memory.
//   * Its work may touch pinned memory and memory of every other context. That includes memory
//     that was freed before and still waits: no hook saw whether it has peer access or a copy under
//     way.
//   * No hook may see its end either, so Cistern makes no call of its own on it. Only a
//     synchronisation by the program shows that its work has ended. Until then, memory freed since
//     does not become clean.
//
// It is careful until its end is seen, its handle turns out to be a new context's, or the program
// gets it by a call that a hook sees (cuDevicePrimaryCtxRetain). Then it is a context like any
// other.
//
// NVIDIA's runtime creates a primary context by the driver's tables, makes it current, and only
// then retains it by a call that a hook sees (13.0 with driver 580, on an H100). So once a runtime
// has the tables, one call that makes a context current is no reason to notice it: the first, while
// the context's device has no active primary context. Any other call before the retain notices it.
//
// Cistern looks for such contexts when the program allocates, frees, queries memory, copies, fills,
// waits, captures, makes a context current, enables peer access, or submits after a free. A launch
// while all freed memory is marked does not look. The caller may hold no lock. If the driver
// refuses the queries, nothing is noticed.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "allocator/reclaim/reclaim.h"
#include "shim/cuda_api.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {

struct Context;

// The program created or retained `handle` on `device`: from now on its work counts when it is
// decided whether freed memory is clean.
void context_appeared(CUcontext handle, CUdevice device);

// Adds a context on `device` whose creation no hook saw: it gets a number, but no pool. False if
// another thread has noticed it before.
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

// --- contexts whose creation no hook saw ---

// To be called after a driver call of the program succeeded that named this context (nullptr: none)
// or a stream of the context: adds the context if no hook saw its creation.
void notice_context(CUcontext handle);
void notice_context_of(CUstream stream);

// To be called when the program made this context current. Whether no hook saw its creation, and
// NVIDIA's runtime will probably retain it next.
bool about_to_be_retained(CUcontext handle);

// --- synchronisations. One of a context shows that all its work is over: after that, no work of
// this context can touch memory that was freed before (allocator/reclaim/reclaim.h).

// Put around a driver call that synchronises a context. Call succeeded() if that call succeeded and
// the context did not end meanwhile.
class ContextWait {
 public:
  explicit ContextWait(Context& context);
  ~ContextWait();
  ContextWait(const ContextWait&) = delete;
  ContextWait& operator=(const ContextWait&) = delete;
  void succeeded();
  // Covers all work submitted before the constructor. After succeeded() the context has passed it.
  alloc::Ticket ticket() const { return ticket_; }

 private:
  Context& context_;
  uint64_t losses_;
  alloc::Ticket ticket_;
  uint64_t last_debt_;
};

// The same for a synchronisation by the program. It also informs the garbage and the clients, such
// as the scratch cache. `handle` nullptr: the current context.
class SynchroniseScope {
 public:
  explicit SynchroniseScope(CUcontext handle);
  SynchroniseScope(const SynchroniseScope&) = delete;
  SynchroniseScope& operator=(const SynchroniseScope&) = delete;
  void succeeded();

 private:
  Context* context_;
  std::optional<ContextWait> wait_;
  CUcontext in_crowd_ = nullptr;  // the context, if it has no number
  alloc::Ticket in_crowd_ticket_ = 0;
};

}  // namespace cistern::shim
