// SPDX-License-Identifier: Apache-2.0
// One CUDA context as the pools see it: its pool, its place in the order of work, its device's cap
// and ledger. This state ends with the context, without a CUDA call. Contexts are found by handle;
// when the driver uses a handle again, the new context gets new state. How they come and go:
// order/contexts/context_life.h. A thread at work in a context visits it; code in folders above
// this one that keeps something for a context is its client. Any thread.
//
// Of primary contexts Cistern also knows how often the program has retained each (primary.cc). Most
// releases do not end one, and then nothing has to be kept away from it meanwhile.
#pragma once

#include <span>

#include "allocator/context_pool.h"
#include "allocator/reclaim/reclaim.h"
#include "shim/cuda_api.h"
#include "shim/order/contexts/context_slot.h"
#include "shim/order/cuda_source.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {

struct Context : ContextSlot {
  CudaSource source;
  alloc::ContextPool pool;
  std::atomic<CUdeviceptr> unused_block;  // that the driver did not free yet (free_wait.cc), or 0
};

inline Context* context_at(int slot) { return static_cast<Context*>(context_slot(slot)); }

// The calling thread's context, or nullptr: none is current, or it has no pool. One whose creation
// no hook saw is noticed here (context_life.h).
Context* current_context();

// The context with this handle, or nullptr: it has no number, or is gone. It may be a careful one.
Context* context_named(CUcontext handle);

// The context that owns a chunk.
Context* context_of(const alloc::Chunk* chunk);

// Put around a driver call that begins a context and what makes it known here: until then, a thread
// that has it current already goes without pools, and nothing is suspected.
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

// Whether there is such a scope; another thread may know the context already.
bool contexts_appearing();

// The calling thread's context has no slot. `generation`: context_generation(), from before it was
// looked for. Defined in unseen.cc, which knows how contexts begin, and so stands above this file.
void unknown_context(CUcontext handle, uint32_t generation);

// A green context works on its device's primary context, whose events cover it; it gets no pool.
void green_context_appeared(CUcontext handle);
bool is_green(CUcontext handle);

// The context whose work that of `handle` is: itself, or for a green context that is current the
// primary one of its device. nullptr if it is not known.
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

// The number is cleared last, and only if it is still the one from before: an expectation that
// begins meanwhile has set another, and the next submission ends it.
template <typename Ended>
void end_seen_empty(Ended ended) {
  uint64_t number = contexts_seen_empty.load(std::memory_order_seq_cst);
  for_each_context([&](Context& context) { ended(context, context.seen_empty.end()); });
  contexts_seen_empty.compare_exchange_strong(number, 0, std::memory_order_seq_cst);
}

// A thread at work in a context that need not be its own: as long as the visit lasts, a context
// that was open does not end, and its slot is no other context's. A visit may contain calls to the
// driver, but no wait for the context's end. A template for tests of the order of the reads; use
// Visit.
template <typename T>
class VisitOf {
 public:
  // The order counts. Its end waits for visitors once it has said that it is closing. Read the
  // other way round, a context could be gone between the two reads, and the slot look open.
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
  // Whether it may be ending: then its sums may be read, but neither its pool nor the driver asked
  // for anything of it.
  bool closing() const { return handle_ != nullptr && closing_; }
  // Whether there is one that does not end meanwhile.
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
  // The context ended, and its handle may be another one's by now. Its slot is not used again
  // before this returns. `held`: bytes of its pool that the program had and did not free.
  void (*gone)(const Context& context, CUcontext handle, uint64_t held) = nullptr;
  // The program is about to wait for the context, and has; `ticket` was closed in between.
  void (*before_synchronise)(const Context& context) = nullptr;
  void (*synchronised)(const Context& context, alloc::Ticket ticket) = nullptr;
  // Memory is short on the device, or (kNoDevice) on one that is not known: releases what is idle.
  // True if that was anything.
  bool (*release_idle_memory)(CUdevice device) = nullptr;
  // The program is about to be told how much of the device is free: what is kept, and counted
  // nowhere as idle, goes back.
  void (*before_free_is_told)(CUdevice device) = nullptr;
};

std::span<const ContextClient> context_clients();

template <typename... Parameters, typename... Arguments>
void tell_clients(void (*ContextClient::*what)(Parameters...), const Arguments&... arguments) {
  for (const ContextClient& client : context_clients()) {
    if (client.*what != nullptr) (client.*what)(arguments...);
  }
}

// NVIDIA's runtime is taken to be about to retain this one (context_life.h). False if that was said
// of one before, unless that retain failed, or the primary context has ended since.
bool await_primary(CUdevice device, CUcontext handle);
void primary_refused(CUdevice device);
// The program has retained the primary context of `device` once more.
void primary_retained(CUdevice device, CUcontext handle);
// The primary context as that was last told, also if it has ended since; nullptr if the program
// never retained it.
CUcontext primary_of(CUdevice device);
// It is gone, or was reset, and what retained it before may count no more.
void primary_ended(CUdevice device);

// The program releases the primary context of `device`: encloses the driver's call.
//
// Of the releases that began, the last by count may end it. A count that is too low (a retain was
// not seen, a release failed) is safe; a release that was not seen makes it too high, and then
// nothing is kept away from a context that ends. One that is not the last by count could be the
// last to reach the driver: the one that is waits for it.
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

}  // namespace cistern::shim
