// SPDX-License-Identifier: Apache-2.0
// CISTERN_FREE_SYNC: before a block goes back to its pool, its context is waited for, as the
// driver's own cuMemFree does and programs have come to rely on. Any thread.
#pragma once

#include "shim/cuda_api.h"
#include "shim/order/contexts/context.h"

namespace cistern::shim {

// `chunk` is what the index found for `address`, `pool` its pool, `owner` the context of that.
// Waits as a synchronisation of the context by the program does. Does not wait during a capture,
// which that would invalidate, nor while the context is about to end, nor for a wrong free, which
// is answered at once. A careful process (order/careful.h) may capture at any time: there it waits
// in a free of the driver's. An error is the answer to the free, and the block stays the program's.
// If there was a wait, *covered becomes the ticket of all work handed over before it.
CUresult wait_before_free(Context& owner, alloc::ContextPool& pool, alloc::Chunk* chunk,
                          CUdeviceptr address, alloc::Ticket* covered);

}  // namespace cistern::shim
