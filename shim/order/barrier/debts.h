// SPDX-License-Identifier: Apache-2.0
// The order that a free owes if it does not wait. With the driver alone, cuMemFree returns once all
// earlier work of the context is done: whatever the program submits afterwards runs after that
// work. If one thread submitted all of it, and the part that the host can see is over
// (visible_work.h), the device can keep that order: the free leaves a *debt* and returns.
//
// The thread that freed is the *debtor*.
//
//   * It submits: before that, one event is recorded for the context, so that it does not cover the
//     new work. The stream waits for that event, once.
//   * It queries an event or a stream that is not done: the thread waits for the debt and queries
//     the driver again.
//   * It ends what work may use: the thread waits for the debt first.
//
// Another thread may know of the free or not.
//
//   * It submits, or ends what work may use: it waits for the debt. Without Cistern it would wait
//     for the context's lock, which the driver's own free holds meanwhile (an H100, driver 580).
//   * It allocates: it waits a second at most. After that it gets memory that was never under the
//     debt (pooled/memory.cc).
//
// No debt begins while a thread waits. A free at such a moment shows that threads do not take turns
// but work at the same time: the next thousand frees wait themselves, as the driver's do. The work
// may need the very thread that waits for it. So that thread gives up after ten seconds, or after
// one if it allocates; from then on no free of this process leaves a debt.
//
// Once the debtor has ended, whatever a thread does comes after its frees: then the host waits
// without a limit. There is one exception. A debt may begin while another thread is handing work
// over in the same context. The debt's event may cover that work, and the work may need a thread
// that waits. Then the limits above hold for an ended debtor as well.
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

// Why a free of the calling thread can leave no debt in the context, because of its work, the
// settings or the driver. FreeWaitReason::none: it can.
FreeWaitReason why_no_debt(const Context& owner);

// To be called in a free, before another thread can get the block: leaves a debt of the calling
// thread in the context and returns FreeWaitReason::none. Any other reason: there is no debt, and
// the free must wait. The caller holds a GatePass.
FreeWaitReason owe(Context& owner);

// No free of this process leaves a debt from here on: a thread waited in vain.
void leave_no_more_debts();

// To be called before a submission to this stream (its name without a suffix, ask.h) in the current
// context. True if it waited for another thread's debts. That thread may have synchronised
// meanwhile, and so counted this submission as done: the caller must note the submission again, and
// call this again for debts that began since.
[[nodiscard]] bool order_behind_debts(CUstream stream);

// The number of the last debt's event record, also of one that the driver refused. Call it before a
// synchronisation of a context; if that succeeds, pass the number to paid_by_synchronisation().
uint64_t last_debt();
void paid_by_synchronisation(Context& context, uint64_t last);

// Streams with this handle end: another one may get it.
void forget_waits_of(CUstream stream);
// The context has ended, and its event with it.
void debt_of_context_gone(Context& context);
// To be called when the process ends: waits for all debts, as the last frees would have waited.
void pay_debts_at_exit();
void reset_debts_after_fork();

}  // namespace cistern::shim
