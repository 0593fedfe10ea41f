// SPDX-License-Identifier: Apache-2.0
// Contexts that no hook saw created (RTLD_DEEPBIND, dlmopen, export tables). Once a hooked call of
// the program reveals one, it is *careful*:
//
//   * It has a number and no pool: the driver alone serves its memory.
//   * Its work may touch memory of every other context and pinned memory, also memory freed before
//     that still waits: nobody saw whether it has peer access, or a copy under way.
//   * No hook may see its end either, so no call of Cistern's own names it. Only a synchronisation
//     by the program shows that its work has ended. Until then, memory freed since does not become
//     clean.
//
// It is careful until its end is seen, its handle turns out to be a new context's, or the program
// gets it by a call that a hook sees (cuDevicePrimaryCtxRetain). Then it is a context like any
// other.
//
// NVIDIA's runtime has a primary context made by the driver's tables, makes it current, and only
// then retains it by a call that is seen (13.0 with driver 580, on an H100). So once a runtime has
// the tables, the first context that is made current while its device has no active primary one is
// not noticed in that call. Any other call before its retain notices it.
//
// It is looked for where the program allocates, frees, asks about memory, copies, fills, waits,
// captures, makes a context current, enables peer access, or submits after a free. A launch while
// all freed memory is marked does not look. Any thread; the caller holds no lock. If the driver
// refuses the queries, nothing is noticed.
//
// current_context() looks at the calling thread's own (unknown_context(), context.h).
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

// A context that the program named in a call which succeeded (nullptr: none); that of a stream on
// which one did.
void notice_context(CUcontext handle);
void notice_context_of(CUstream stream);

// The program made this context current: whether no hook saw it made, and NVIDIA's runtime may be
// about to retain it.
bool about_to_be_retained(CUcontext handle);

}  // namespace cistern::shim
