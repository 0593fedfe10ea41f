// SPDX-License-Identifier: Apache-2.0
// Pools of page-locked host memory (cuMemHostAlloc): for each context one for each set of flags,
// made at the first request, ended with the context. Blocks are cut from chunks as `auto_growth`
// does for device memory, with the same rules for their reuse, over one ledger and one cap.
//
// Any work of the process may read or write pinned memory: with unified addresses every context can
// reach it, in kernels that no hook can inspect. So the pools are a party of reclamation of their
// own, which submits no work and is tied to every context as long as that lives.
//
// Chunks have an index of their own: an address of a chunk here is in none of the device's pools.
// Pools are made and ended with one lock, which is never held around a driver call; any thread.
#pragma once

#include <atomic>

#include "allocator/base/source.h"
#include "allocator/context_pool.h"
#include "shim/order/contexts/context.h"
#include "shim/order/cuda_source.h"

namespace cistern::shim {

// The flags there are: portable, device-mapped, write-combined.
inline constexpr unsigned kPinnedFlagSets = 8;
inline constexpr int kMostPinnedPools = alloc::Reclaim::kMaxContexts * kPinnedFlagSets;

// The MemorySource of page-locked host memory: chunks from cuMemHostAlloc with one set of flags, in
// one context. It has no work of its own and so no marks: the pool is tied to every context. Any
// thread.
class PinnedSource final : public alloc::MemorySource {
 public:
  // `owner`: the source of the context's device memory. `release_from_others`: releases idle pinned
  // memory of other pools to the driver; true if anything was released. `most_bytes`: the most that
  // all pools together may hold.
  void init(CUcontext context, CudaSource* owner, unsigned flags, uint64_t most_bytes,
            bool (*release_from_others)());

  // Whether some thread is in a driver call that may end the context.
  bool closing() const { return owner_->closing(); }
  // Whether some thread calls the driver for memory of the pool, or fills it.
  bool at_work() const { return at_work_.load(std::memory_order_seq_cst) != 0; }

  int obtain(uint64_t bytes, uint64_t* address) override;
  int release_for_program(uint64_t address, const alloc::OrderedFree* ordered) override;
  int release(uint64_t address) override;
  bool refuses_release() override;
  bool request_background_work(bool soon) override;
  int fill(const alloc::FillRange* ranges, int count) override;
  bool release_from_other_pools() override { return release_from_others_(); }
  bool mark(alloc::Mark*) override { return false; }
  bool marks_anywhere() override;
  uint64_t memory_bytes() override { return most_bytes_; }
  alloc::MarkState query(alloc::Mark) override { return alloc::MarkState::failed; }
  void forget(alloc::Mark) override {}

 private:
  bool may_touch_context() const;

  CUcontext context_;
  CudaSource* owner_;
  unsigned flags_;
  uint64_t most_bytes_;
  bool (*release_from_others_)();
  std::atomic<int> at_work_;
};

struct PinnedPool {
  std::atomic<CUcontext> handle;  // of its context; nullptr: that has ended
  std::atomic<int> visitors;      // Visits, for which the context's end waits
  uint32_t number;                // the owner's number in its chunks
  Context* context;
  PinnedSource source;
  alloc::ContextPool pool;
};

using PinnedVisit = VisitOf<PinnedPool>;

// The pool for this context and these flags (below kPinnedFlagSets). nullptr if it cannot be made;
// then the driver serves the request.
PinnedPool* pinned_pool(Context& context, unsigned flags);

// To be called if the driver has no more pinned memory: releases idle memory of all pinned pools.
// True if anything was released.
bool release_idle_pinned_memory();

// The pool that owns a chunk of pinned memory.
PinnedPool* pinned_pool_of(const alloc::Chunk* chunk);

// Where chunks of pinned memory are found by address.
alloc::Index& pinned_index();

// The ledger and the cap of all pinned pools. The cap is a share of physical memory
// (FLAGS_fraction_of_cuda_pinned_memory_to_use); there is no cap if the size of that is unknown.
alloc::Ledger& pinned_ledger();
const alloc::Cap& pinned_cap();

// What the pools hold now, and how many calls of the program they served, including pools that are
// gone. False before the first pool.
struct PinnedUsage {
  alloc::Usage usage;
  uint64_t allocations, frees;
};
bool pinned_usage(PinnedUsage* out);

// A party that submits work appeared, a context or the crowd: ties the pinned pools to it.
void pinned_pools_of_worker(uint32_t worker);
// A context is about to end (waits for those at work in its pools); is gone.
void await_pinned_pools(const Context& context);
void pinned_pools_gone(const Context& context);
void reset_pinned_pools_after_fork();

// Whether freed pinned memory is not marked.
bool pinned_frees_unmarked();

// How many pools there are, and one of them, whether its context lives or not.
int pinned_pools();
PinnedPool* pinned_pool_at(int number);

// Calls visit() for every pool of a living context, in no particular order.
template <typename Visitor>
void for_each_pinned_pool(Visitor visit) {
  for (int i = 0, n = pinned_pools(); i < n; ++i) {
    PinnedPool* pool = pinned_pool_at(i);
    if (pool->handle.load(std::memory_order_acquire) != nullptr) visit(*pool);
  }
}

}  // namespace cistern::shim
