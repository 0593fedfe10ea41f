// SPDX-License-Identifier: Apache-2.0
// One CUDA context as the pools see it: its pool, its place in the order of work, its device's cap
// and ledger. This state ends with the context, without a CUDA call. Contexts are found by handle;
// when the driver uses a handle again, the new context gets new state. How they come and go:
// order/contexts/context_life.h. Any thread.
#pragma once

#include "allocator/context_pool.h"
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
// no hook saw is noticed here (unseen.h).
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

// No context counts as empty any more (seen_empty.h). Makes no driver call. ended(context,
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

}  // namespace cistern::shim
