// SPDX-License-Identifier: Apache-2.0
// The work that a free has to wait for, since the host sees it (host_visible.h): an event is
// recorded behind it on its stream, and the free waits for that event alone. So the free's wait
// ends with the last such work, and the device keeps the order of other work (debts.h).
//
// Only the work of one thread is followed, and only where frees may leave debts. Work that cannot
// be followed, because no event can be recorded behind it, counts as visible in the state of its
// context (unfinished.h), and the free waits for all of it.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

// The calling thread has just handed over such work on this stream (its name without a suffix) of
// its current context. False: no event could be recorded behind it.
bool follow_visible_work(CUstream stream);

// Whether there may be something to wait for in the context.
bool any_visible_work(const Context& context);

// Whether a stream that waits for an event, or is given memory of a pool of the driver's, may wait
// for such work of another context than its own, or for work of another thread there, as far as is
// known. If so the wait is such work, too: a free in the stream's context comes behind it.
bool may_await_visible_work(CUstream stream);

// Waits for what was followed in the context, as long as that takes.
void await_visible_work(Context& context);

// Before a stream ends.
void visible_work_leaves(CUstream stream);

// The context has ended, and its events with it.
void visible_work_gone(CUcontext handle);
void reset_visible_work_after_fork();

}  // namespace cistern::shim
