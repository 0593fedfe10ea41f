// SPDX-License-Identifier: Apache-2.0
// CISTERN_FREE_SYNC: before a block goes back to its pool, the free waits for the work of its
// context, as the driver's own cuMemFree and cuMemFreeHost do. Programs rely on that: they read
// what a copy or a kernel wrote, overwrite what a copy reads, use on one stream what another one
// wrote, or ask an event. Any thread.
//
//   what there is to wait for                     how
//   nothing was submitted since the context was   no wait, no driver call
//   seen empty (order/barrier/work.h)
//   work of this thread alone, of which the host  none: the device keeps the order
//   sees nothing (order/barrier/work.h)
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
// A free of pinned memory waits for the context in which the memory was allocated: in cuMemFreeHost
// an H100 with driver 580 waited for no other one.
//
// A free of the driver's own waits for what the driver decides, and fails if a capture forbids it.
// If a capture begins during a wait, the next wait is such a free as well, in a mode in which the
// capture cannot forbid it.
//
// A synchronisation proves that the freed memory is clean. A free of the driver's own does not:
// measured devices wait there, but CUDA does not promise it.
//
// Before a free leaves its order to the device, it checks whether the program has opened a device
// that reaches GPU memory past CUDA (free_wait.cc): such a device would not keep the order.
#pragma once

#include "shim/cuda_api.h"
#include "shim/order/barrier/work.h"
#include "shim/order/contexts/context.h"
#include "shim/process/settings.h"

namespace cistern::shim {

struct FreeWait {
  bool over = false;  // the free returns `answer`, and the block does not go to the pool
  CUresult answer = CUDA_SUCCESS;
  alloc::Ticket latest = alloc::Reclaim::kNow;  // covers all work that may touch the block
};

// A ticket that every context has passed. Work on the block's next use comes after all earlier
// work: that is over, or the device keeps the order.
inline constexpr alloc::Ticket kClean = 0;

// The slow path, if there is something to wait for. `chunk` is what the index found for `address`,
// `pool` is its pool, `owner` the pool's context. Does not wait if the context is about to end, or
// if the program holds no block at the address. If the wait fails, the free returns its error and
// the block stays the program's.
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
