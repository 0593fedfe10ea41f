// SPDX-License-Identifier: Apache-2.0
// Which contexts there are: slots, found by handle. A slot is the part of a context's state that
// does not need its pool; order/contexts/context.h adds the rest. Slots are filled by one thread at
// a time (order/contexts/context_life.h) and read without a lock; their memory is never given back.
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/reclaim/reclaim.h"
#include "shim/cuda_api.h"
#include "shim/order/barrier/debt.h"
#include "shim/order/barrier/unfinished.h"
#include "shim/order/contexts/seen_empty.h"

namespace cistern::shim {

struct ContextSlot {
  std::atomic<CUcontext> handle;    // nullptr: no context has the slot
  std::atomic<uint64_t> id;         // the driver's, which no other context ever has; 0: not known
  std::atomic<CUdevice> device;     // visitors may read it while the slot changes hands
  uint32_t number;                  // context_slot(number) is this one
  std::atomic<uint32_t> suspicion;  // 0: none (order/ask.h)
  std::atomic<bool> careful;        // no hook saw it made (unseen.h)
  std::atomic<int> attached;        // cuCtxAttach calls not yet undone
  std::atomic<int> visitors;        // Visits (visit.h), for which the context's end waits
  SeenEmpty seen_empty;
  Unfinished unfinished;
  Debt debt;
};

// How many contexts there are. Only between several of them can there be ties (order/ties.h).
extern constinit std::atomic<int> contexts_living;
inline bool several_contexts() { return contexts_living.load(std::memory_order_relaxed) > 1; }

// The same count, and one more for good where streams are followed (streams.h): whether each
// submission is looked at.
extern constinit std::atomic<int> submissions_looked_at;
inline bool submissions_watched() {
  return submissions_looked_at.load(std::memory_order_relaxed) > 1;
}
// So many more contexts.
void count_contexts(int change);

// How many EndingScopes (context_life.h) are open. While there is one, the driver may have given
// out anew an address that the index still has for the ending context.
extern constinit std::atomic<int> contexts_ending;

// Reclamation's numbers (allocator/reclaim/reclaim.h): of contexts, and one of the pools of pinned
// memory (pinned_pools.h). A new one, never given back; -1: all are taken. The last number is that
// of all contexts which found none (crowd.h).
int new_reclaim_number();
inline constexpr uint32_t kCrowd = alloc::Reclaim::kMaxContexts - 1;

// How many numbers there are, and the slot with one of them; nullptr: no context's.
int context_slots();
ContextSlot* context_slot(int number);

// The slot of the context with this handle, or nullptr: not pooled, or gone.
ContextSlot* find_context_slot(CUcontext handle);

// Adds a slot, whose number is new. One thread at a time.
void add_context_slot(ContextSlot* slot);

// A number that changes when a handle may have become another context's: what was found by handle
// before may be stale then.
uint32_t context_generation();
void handle_changed_meaning();

// The calling thread's context, pooled or not; nullptr without one.
CUcontext current_handle();

}  // namespace cistern::shim
