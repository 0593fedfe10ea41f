// SPDX-License-Identifier: Apache-2.0
// One CUDA context as the pools see it: its pool, its place in the order of work, its device's cap
// and ledger. This state ends with the context, without a CUDA call. Contexts are found by handle;
// when the driver uses a handle again, the new context gets new state. context_life.h describes
// their beginning and end. A thread that works in a context holds a Visit. Code in folders above
// this one that keeps something for a context is a client (ContextClient). Any thread.
//
// For primary contexts Cistern counts how often the program has retained each (primary.cc). Most
// releases do not end the context, and then other threads need not be kept away from it.
//
// The last functions are about several contexts together: the memory that those of a device keep,
// and the figures of the report.
#pragma once

#include <cstdint>
#include <span>

#include "allocator/context_pool.h"
#include "allocator/reclaim/reclaim.h"
#include "shim/cuda_api.h"
#include "shim/order/contexts/context_slot.h"
#include "shim/order/cuda_source.h"
#include "shim/process/no_cancel.h"
#include "shim/process/report_figures.h"

namespace cistern::shim {

struct Context : ContextSlot {
  CudaSource source;
  alloc::ContextPool pool;
  std::atomic<CUdeviceptr> unused_block;  // that the driver did not free yet (free_wait.cc), or 0
};

inline Context* context_at(int slot) { return static_cast<Context*>(context_slot(slot)); }

// The calling thread's context; nullptr if none is current or if it has no pool. A context whose
// creation no hook saw is noticed here (context_life.h).
Context* current_context();

// The context with this handle; nullptr if it has no number or is gone. It may be a careful one.
Context* context_named(CUcontext handle);

// The context that owns a chunk.
Context* context_of(const alloc::Chunk* chunk);

// Put around a driver call that creates a context, and the call that makes it known here. Meanwhile
// another thread may have the context current already. That thread gets no pool, and the context
// does not count as one whose creation no hook saw.
class AppearingScope {
 public:
  AppearingScope();
  ~AppearingScope();
  AppearingScope(const AppearingScope&) = delete;
  AppearingScope& operator=(const AppearingScope&) = delete;

 private:
  const NoCancel counted_;
};

// The device of the calling thread's context; kNoDevice without one.
CUdevice current_device();
// The device of a context whose creation was seen; else kNoDevice.
CUdevice device_of(CUcontext handle);

// Whether an AppearingScope exists: another thread may then have its context current already.
bool contexts_appearing();

// To be called if the calling thread's context has no slot. `generation`: context_generation() from
// before the look-up. Defined in context_life.cc.
void unknown_context(CUcontext handle, uint32_t generation);

// A green context works on its device's primary context, whose events cover it; it gets no pool.
void green_context_appeared(CUcontext handle);
bool is_green(CUcontext handle);

// The context that does the work of `handle`: itself; for a green context that is current, the
// primary context of its device. nullptr if it is not known.
Context* working_context(CUcontext handle);

// No context counts as empty any more (barrier/work.h). Makes no driver call. ended(context,
// was_empty) is called for each.
template <typename Ended>
void end_seen_empty(Ended ended);
inline void end_seen_empty() {
  end_seen_empty([](Context&, bool) {});
}

// Calls visit() for every context that there is, in no particular order. One that appears or ends
// meanwhile may be left out.
template <typename Visitor>
void for_each_context(Visitor visit) {
  for (int i = 0, n = context_slots(); i < n; ++i) {
    Context* context = context_at(i);
    if (context == nullptr) continue;
    if (context->handle.load(std::memory_order_acquire) != nullptr) visit(*context);
  }
}

// Clears contexts_seen_empty last, and only if it has not changed: an expectation that begins
// meanwhile has set another number, and the next submission ends that one.
template <typename Ended>
void end_seen_empty(Ended ended) {
  uint64_t number = contexts_seen_empty.load(std::memory_order_seq_cst);
  for_each_context([&](Context& context) { ended(context, context.seen_empty.end()); });
  contexts_seen_empty.compare_exchange_strong(number, 0, std::memory_order_seq_cst);
}

// A thread at work in a context, which need not be its current one. While the visit lasts, a
// context that was open does not end, and no other context gets its slot. A visitor may call the
// driver, but must not wait for the context's end. It is a template only for tests; use Visit.
template <typename T>
class VisitOf {
 public:
  // Read closing() before the handle. The end of a context first sets closing, then waits for
  // visitors. In the other order the context could end between the two reads, and look open.
  explicit VisitOf(T& context) : context_(context) {
    context_.visitors.fetch_add(1);
    closing_ = context_.source.closing();
    handle_ = context_.handle.load();
  }
  ~VisitOf() { context_.visitors.fetch_sub(1); }
  VisitOf(const VisitOf&) = delete;
  VisitOf& operator=(const VisitOf&) = delete;

  // The context that has the slot; nullptr: none. As long as the visit lasts, no other one gets it.
  CUcontext handle() const { return handle_; }
  // Whether the context may be ending. If so, only read its figures: call neither its pool nor the
  // driver for it.
  bool closing() const { return handle_ != nullptr && closing_; }
  // Whether there is a context, and it does not end during the visit.
  bool open() const { return handle_ != nullptr && !closing_; }

 private:
  T& context_;
  bool closing_;
  CUcontext handle_;
};

using Visit = VisitOf<Context>;

// A client keeps something for a context or a device beside its pool (kinds/: the scratch cache,
// charges). Through this table it learns what happens to a context, and returns its idle memory on
// request. Includes go one way only, so the topmost folder fills the table in (hooks/parts.cc).
//
// A null member means: nothing to do. Any thread may call any of them. No lock is held, except in
// gone(), where it is that of context_life.cc.
struct ContextClient {
  // closing(): a driver call that may end the context is about to be made. reopened(): that call is
  // over. The two come in pairs.
  void (*closing)(const Context& context) = nullptr;
  void (*reopened)(const Context& context) = nullptr;
  // The context ended; a new context may have its handle by now. Its slot is not reused before this
  // returns. `held`: bytes of its pool that the program had not freed.
  void (*gone)(const Context& context, CUcontext handle, uint64_t held) = nullptr;
  // The program is about to wait for the context, and has; `ticket` was closed in between.
  void (*before_synchronise)(const Context& context) = nullptr;
  void (*synchronised)(const Context& context, alloc::Ticket ticket) = nullptr;
  // Memory is short on the device, or (kNoDevice) on one that is not known: releases what is idle.
  // True if that was anything.
  bool (*release_idle_memory)(CUdevice device) = nullptr;
  // The program is about to query the device's free memory: releases memory that is kept but not
  // counted as idle.
  void (*before_free_is_told)(CUdevice device) = nullptr;
};

std::span<const ContextClient> context_clients();

template <typename... Parameters, typename... Arguments>
void tell_clients(void (*ContextClient::*what)(Parameters...), const Arguments&... arguments) {
  for (const ContextClient& client : context_clients()) {
    if (client.*what != nullptr) (client.*what)(arguments...);
  }
}

// Records that NVIDIA's runtime will probably retain this context next (context_life.h). False if
// that is already recorded of a context of this device, unless that retain failed, or the primary
// context has ended since.
bool await_primary(CUdevice device, CUcontext handle);
void primary_refused(CUdevice device);
// The program has retained the primary context of `device` once more.
void primary_retained(CUdevice device, CUcontext handle);
// The primary context that the program retained last, even if it has ended since; nullptr if there
// is none.
CUcontext primary_of(CUdevice device);
// The primary context ended or was reset: earlier retains may count no more.
void primary_ended(CUdevice device);

// The program releases the primary context of `device`: encloses the driver's call.
//
// A release may end the context if by count it is the last one. A count that is too low (a retain
// was not seen, a release failed) is safe. A release that was not seen makes the count too high,
// and then other threads are not kept away from a context that ends. Of two concurrent releases,
// the first by count could be the last to reach the driver. So the last by count waits until the
// others are over.
class PrimaryRelease {
 public:
  explicit PrimaryRelease(CUdevice device);
  ~PrimaryRelease();
  PrimaryRelease(const PrimaryRelease&) = delete;
  PrimaryRelease& operator=(const PrimaryRelease&) = delete;

  bool may_end() const { return !spare_; }

 private:
  struct Primary* const primary_;  // nullptr: no such device
  bool spare_ = false;             // others have retained it, and their releases have not begun
};

// --- all contexts together: the memory that those of a device keep for reuse, and the figures of
// the report at exit (process/report_figures.h). Defined in all_contexts.cc.

// Bytes on a device. `idle`: kept, and could be released; counted as the driver and the cap count.
// `live`: handed to the program.
struct PooledBytes {
  uint64_t idle = 0, live = 0;
};
PooledBytes pooled_bytes_of(CUdevice device);

// To be called before the program is told how much of the device is free.
void about_to_tell_free(CUdevice device);

// Releases the memory that clients (ContextClient) keep on the device; kNoDevice: on every device.
// False if nothing was released.
bool release_idle_memory_of_clients(CUdevice device);

// Releases all that is kept on the device, except what the pool of `except` keeps. False if nothing
// was released. Waits 0.2 s at most, and only for work that was submitted before the frees.
bool release_idle_memory_of(CUdevice device, const Context* except);

// Releases all clean memory of the pools of the device's contexts to the driver, without a wait.
void release_clean_memory_of(CUdevice device);

// Makes no CUDA call.
ProcessReport describe_process();

}  // namespace cistern::shim
