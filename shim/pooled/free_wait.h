// SPDX-License-Identifier: Apache-2.0
// CISTERN_FREE_SYNC: before a block goes back to its pool, the work of its context is waited for,
// as in the driver's own cuMemFree and cuMemFreeHost. Programs have come to rely on that: they read
// what a copy or a kernel wrote, overwrite what a copy reads, use on one stream what another one
// wrote, or ask an event. Any thread.
//
//   what there is to wait for                     how
//   nothing was submitted since the context was   no wait, no driver call
//   seen empty (order/barrier/work.h)
//   work of this thread alone, of which the host  none: the device keeps the order
//   sees nothing (order/barrier/debts.h)
//   work of this thread alone, some of which the  an event behind it (order/barrier/
//   host sees                                     visible_work.h); the device keeps the order of
//                                                 the rest
//   work of the context                           a synchronisation of it
//   the same during a capture, with peer access,  a free of the driver's own, of 4 KiB that
//   in a careful process, or with copies of       nothing uses
//   another context that use its memory
//   (order/ties.h)
//   such copies where memory lies in units        a synchronisation of the other context, too:
//   (allocator/expandable)                        the driver need not know of them
//
// For pinned memory that is the work of the context in which it was allocated: in cuMemFreeHost an
// H100 with driver 580 waited for no other one.
//
// In a free of its own the driver says what it waits for, and whether a capture allows it. Once a
// capture has begun during one wait, the next is such a free, too, which the capture cannot forbid.
//
// A synchronisation shows that the freed memory is clean. A free of the driver's own does not:
// measured devices wait there, but CUDA does not promise it.
//
// Before a free leaves its order to the device, it looks whether the program has a device open that
// reaches memory of the GPU past CUDA (free_wait.cc): such a device would not keep that order.
#pragma once

#include "shim/cuda_api.h"
#include "shim/order/barrier/debts.h"
#include "shim/order/contexts/context.h"
#include "shim/process/settings.h"

namespace cistern::shim {

struct FreeWait {
  bool over = false;  // the free has its answer, and the pool is not to be asked
  CUresult answer = CUDA_SUCCESS;
  alloc::Ticket latest = alloc::Reclaim::kNow;  // covers all work that may touch the block
};

// A ticket that every context has passed: whoever gets the block next comes behind all earlier
// work, which the device keeps in order or which is over.
inline constexpr alloc::Ticket kClean = 0;

// Where there is something to wait for. `chunk` is what the index found for `address`, `pool` its
// pool, `owner` the context of that. Does not wait while the context is about to end, nor for a
// wrong free. A failed wait is the answer to the free, and the block stays the program's.
[[gnu::cold]] FreeWait wait_in_free(Context& owner, alloc::ContextPool& pool, alloc::Chunk* chunk,
                                    CUdeviceptr address);

// To be called in every free of a pooled block, of device and of pinned memory.
[[gnu::always_inline]] inline FreeWait wait_before_free(Context& owner, alloc::Chunk* chunk,
                                                        CUdeviceptr address) {
  FreeWait wait;
  if (policy().free_sync == config::FreeSync::kFalse || owner.seen_empty.now(&wait.latest)) {
    return wait;
  }
  if (owner.debt.open_for.load(std::memory_order_acquire) == this_thread_id()) {
    wait.latest = kClean;
    free_counts.ordered.own_add();  // there is one debtor at a time
    return wait;
  }
  return wait_in_free(owner, owner.pool, chunk, address);
}
FreeWait wait_before_pinned_free(Context& owner, alloc::ContextPool& pool, alloc::Chunk* chunk,
                                 CUdeviceptr address);

}  // namespace cistern::shim
