// SPDX-License-Identifier: Apache-2.0
// The order that a free owes where it does not wait. With the driver alone, cuMemFree comes back
// once all earlier work of the context is done: whatever the program submits after it comes behind
// that work. Where one thread handed over all of it, and the host cannot see any (unfinished.h),
// the device can keep that order: the free leaves a *debt* and returns.
//
//   The thread that freed, the *debtor*
//     submits      first one event is recorded for the whole context, so that later work is not
//     part
//                  of it; then the stream waits for that event, once
//     asks about   an event or a stream that is not done: the debt is waited for, and the driver
//     asked
//                  again
//     ends what work may use (unmaps, unloads, begins a capture, ends the context): the debt is
//     waited
//                  for first
//   Any other thread
//     submits, or ends what work may use: waits for the debt, but a second at most. It may know of
//     the
//                  free or not, and the work it waits for may itself wait for this thread
//     allocates    gets memory that was never under the debt (pooled/memory.cc)
//
// So a freed block can be handed out again at once: whoever gets it reaches it by submissions
// behind the debt alone. Memory that leaves by another way waits for the debt: what goes back to
// the driver, and what is shared.
//
// One thread at a time is the debtor, with a debt in any number of contexts; its streams wait for
// all of them. A debt ends when its event has passed, or with a synchronisation of its context.
// Where no event can be recorded the debtor waits for the context in its next call.
//
// Drivers before CUDA 12.5 cannot record an event for a whole context: there are no debts. No debt
// begins while anything captures, with peer access or ties, in a careful process, nor where Cistern
// fills memory.
#pragma once

#include "shim/cuda_api.h"
#include "shim/order/barrier/debt.h"

namespace cistern::shim {

struct Context;

// In a free of the calling thread: leaves a debt in the context, before the block can be taken by
// anybody. False: it cannot, and the free must wait. The caller holds a GatePass.
bool owe(Context& owner);

// Before a submission to this stream (its name without a suffix, ask.h) in the current context.
void order_behind_debts(CUstream stream);

// A synchronisation of the context succeeded that began at `start`.
DebtMoment debt_moment();
void paid_by_synchronisation(Context& context, DebtMoment start);

// Streams with this handle end: another one may get it.
void forget_waits_of(CUstream stream);
// The context has ended, and its event with it.
void debt_of_context_gone(Context& context);
void reset_debts_after_fork();

}  // namespace cistern::shim
