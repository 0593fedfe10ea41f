// SPDX-License-Identifier: Apache-2.0
// CISTERN_FREE_SYNC: before a block goes back to its pool, its context is waited for, as the
// driver's own cuMemFree and cuMemFreeHost do and programs have come to rely on: they read what a
// copy or a kernel wrote, overwrite what a copy reads, use on one stream what another one wrote, or
// ask an event. Any thread.
//
//   nothing was submitted since the context was seen empty   no wait, no driver call (seen_empty.h)
//   else                                                     a synchronisation of the context
//   a capture is under way, peer access, a careful process   a free of the driver's own, of 4 KiB
//                                                            that nothing uses: so the driver says
//                                                            which contexts a free waits for, and
//                                                            whether a capture allows it
//
// A synchronisation shows also that the freed memory is clean. A free of the driver's own does not:
// that is known to wait for the context on the devices that were measured, and nothing says so.
#pragma once

#include "shim/cuda_api.h"
#include "shim/order/contexts/context.h"
#include "shim/process/settings.h"

namespace cistern::shim {

// The last two lines of the table. `chunk` is what the index found for `address`, `pool` its pool,
// `owner` the context of that. Returns at once while the context is about to end, and for a wrong
// free. An error is the answer to the free, and the block stays the program's. *latest becomes the
// ticket of all work handed over before, where that is known to be done.
[[gnu::cold]] CUresult wait_in_free(Context& owner, alloc::ContextPool& pool, alloc::Chunk* chunk,
                                    CUdeviceptr address, alloc::Ticket* latest);

// To be called in every free of a pooled block; *latest is Reclaim::kNow before.
[[gnu::always_inline]] inline CUresult wait_before_free(Context& owner, alloc::ContextPool& pool,
                                                        alloc::Chunk* chunk, CUdeviceptr address,
                                                        alloc::Ticket* latest) {
  if (policy().free_sync == config::FreeSync::kFalse || owner.seen_empty.now(latest)) {
    return CUDA_SUCCESS;
  }
  return wait_in_free(owner, pool, chunk, address, latest);
}

}  // namespace cistern::shim
