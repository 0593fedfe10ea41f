// SPDX-License-Identifier: Apache-2.0
// One CUDA context as the pools see it: its pool, its place in the order of work, its device's cap
// and ledger. State is per context and goes with it, without a CUDA call. Contexts are found by
// handle; a handle the driver uses again gets a new state. Any thread.
#pragma once

#include <atomic>

#include "allocator/context_pool.h"
#include "shim/cuda_api.h"
#include "shim/order/cuda_source.h"
#include "shim/order/device.h"

namespace cistern::shim {

struct Context {
  std::atomic<CUcontext> handle;    // nullptr: slot free
  std::atomic<uint64_t> id;         // the driver's, which no other context ever has; 0: not known
  std::atomic<CUdevice> device;     // visitors may read it while the slot changes hands
  uint32_t slot;                    // context_at(slot) is this one
  std::atomic<uint32_t> suspicion;  // 0: none (suspicion.h)
  std::atomic<int> attached;        // cuCtxAttach calls not yet undone
  std::atomic<int> visitors;        // threads of other contexts that are in the pool
  alloc::Timeline* timeline;
  CudaSource source;
  alloc::ContextPool pool;
};

alloc::Shared& shared();

// The calling thread's context, pooled or not, and its device; nullptr and kNoDevice without one.
CUcontext current_handle();
CUdevice current_device();
// The device of a context whose creation was seen; else kNoDevice.
CUdevice device_of(CUcontext handle);

// The calling thread's context, or nullptr: none is current, or it cannot be pooled. A context
// whose creation was not seen came by a route that is not covered: what it does is unknown, so from
// then on nothing is taken for clean.
Context* current_context();

// The context with this handle, or nullptr: not pooled, or gone.
Context* context_named(CUcontext handle);

// The context that owns a chunk.
Context* context_of(const alloc::Chunk* chunk);

// The program created or retained `handle` on `device`: from now on its work counts when it is
// decided whether freed memory is clean.
void context_appeared(CUcontext handle, CUdevice device);

// A `what` (context, stream) turned up that no hook saw coming: said once; nothing is taken for
// clean any more.
void distrust(const char* what);

// A green context works on its device's primary context, whose events cover it; it gets no pool.
void green_context_appeared(CUcontext handle);

// cuCtxAttach and cuCtxDetach count; context_detached() says whether the context lives on.
void context_attached(CUcontext handle);
bool context_detached(CUcontext handle);

// What is kept for reuse on a device, as the driver (and the cap) count it, and could be returned.
uint64_t idle_memory_of(CUdevice device);
// Returns it, except what the pool of `except` keeps; false if that is nothing.
bool return_idle_memory_of(CUdevice device, const Context* except);

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

// The context `device` has as its primary one, as far as the program retained it; else nullptr.
CUcontext primary_of(CUdevice device);
void primary_is(CUdevice device, CUcontext handle);

// Whether any EndingScope is open: then the driver may have given away what the index still knows.
extern constinit std::atomic<int> contexts_ending;

// The program synchronised a context (nullptr: the current one).
class SynchroniseScope {
 public:
  explicit SynchroniseScope(CUcontext handle);
  void succeeded();
  // Covers all work handed over before; once succeeded(), the context has passed it.
  alloc::Ticket ticket() const { return ticket_; }

 private:
  Context* context_;
  alloc::Ticket ticket_ = 0;
  uint64_t losses_ = 0;
};

// For totals over all pools of a device; called in no particular order.
template <typename Visitor>
void for_each_context(Visitor visit);
Context* context_at(int slot);
int context_slots();

template <typename Visitor>
void for_each_context(Visitor visit) {
  for (int i = 0; i < context_slots(); ++i) {
    Context* context = context_at(i);
    if (context != nullptr && context->handle.load(std::memory_order_acquire) != nullptr) {
      visit(*context);
    }
  }
}

void reset_contexts_after_fork();

}  // namespace cistern::shim
