// SPDX-License-Identifier: Apache-2.0
// The order that a free owes where it does not wait. With the driver alone, cuMemFree comes back
// once all earlier work of the context is done: whatever the program submits after it comes behind
// that work. If one thread submitted all of it, and the part that the host can see is over
// (visible_work.h), the device can keep that order: the free leaves a *debt* and returns.
//
// The thread that freed is the *debtor*.
//
//   * It submits: one event is recorded for the context, before, so that later work is not part of
//     it. The stream waits for that event, once.
//   * It queries an event or a stream that is not done: the debt is waited for, and the driver
//     queried again.
//   * It ends what work may use: the debt is waited for first.
//
// Another thread may know of the free or not.
//
//   * It submits, or ends what work may use: it waits for the debt, as it would for the lock of the
//     context that the driver's own free holds meanwhile (an H100, driver 580).
//   * It allocates: it waits a second at most, and else gets memory that was never under the debt
//     (pooled/memory.cc).
//
// No debt begins while a thread waits. A free at such a moment shows that threads do not take turns
// but work at the same time: the next thousand frees wait themselves, as the driver's do. The work
// may wait for the thread that waits for it. So it gives up after ten seconds, or after one if it
// allocates; then no free of this process leaves a debt any more.
//
// Once the debtor has ended, whatever a thread does comes after its frees: then the host waits,
// without a limit. But a debt may begin while another thread is handing work over in the same
// context. Its event may cover that work, and the work may need a thread that waits. Then these
// limits hold for an ended debtor, too.
//
// So a freed block can be handed out again at once: only submissions behind the debt reach it.
// Memory that goes back to the driver, or is shared, waits for the debt.
//
// One thread at a time is the debtor, with a debt in any number of contexts; its streams wait for
// all of them. A debt ends when its event has passed, or with a synchronisation of its context. If
// no event can be recorded, the debtor waits for the context in its next call.
//
// Drivers before CUDA 12.5 cannot record an event for a whole context: there are no debts. No debt
// begins during a capture, with peer access or ties, in a careful process, or if Cistern fills
// memory.
#pragma once

#include "shim/cuda_api.h"
#include "shim/order/barrier/work.h"

namespace cistern::shim {

struct Context;

// Whether a free can leave a debt at all, with these settings and this driver.
bool debts_possible();

// Why a free of the calling thread can leave no debt in the context, as far as its work, the
// settings and the driver are concerned; none: it can.
FreeWaitReason why_no_debt(const Context& owner);

// In a free of the calling thread: leaves a debt in the context, before the block can be taken by
// anybody; none. Else it cannot, and the free must wait, for this reason. The caller holds a
// GatePass.
FreeWaitReason owe(Context& owner);

// No free of this process leaves a debt from here on: a thread waited in vain.
void leave_no_more_debts();

// Before a submission to this stream (its name without a suffix, ask.h) in the current context.
// True: another thread's debts were waited for. That thread may have synchronised meanwhile, and
// taken this submission for work that is over: it is told again, and debts that began since are
// looked for.
[[nodiscard]] bool order_behind_debts(CUstream stream);

// A synchronisation of the context succeeded; `last`: what last_debt() said before it began, the
// number of the last record, also of one that the driver refused.
uint64_t last_debt();
void paid_by_synchronisation(Context& context, uint64_t last);

// Streams with this handle end: another one may get it.
void forget_waits_of(CUstream stream);
// The context has ended, and its event with it.
void debt_of_context_gone(Context& context);
// The process ends: the last frees would not have come back before.
void pay_debts_at_exit();
void reset_debts_after_fork();

}  // namespace cistern::shim
