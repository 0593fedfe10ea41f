// SPDX-License-Identifier: Apache-2.0
// Whether something may go on that no hook sees. The process becomes *careful* once a call may have
// submitted work that touches any memory, made a stream or a context, or begun a capture. It stays
// so until it ends, since nothing shows when that is over. From then on
//
//   * nothing that was freed becomes clean (Reclaim::freeze): marks and synchronisations of the
//     known contexts prove nothing about others. If memory is short, the pools' memory goes back to
//     the driver, whose own free waits for everything;
//   * the capture gate is closed (capture_gate.h), as by a capture without an end. So Cistern makes
//     no driver call of its own. The driver serves the program's requests and frees.
//
// So a careful process has the driver's own order, results and speed, except for memory that the
// pools held before. Blocks that were freed before wait only for what they already waited for.
//
// A function that submits work unseen, but only in contexts that the program got from hooked calls,
// has less effect (entry/unknown.h). From its first call on *work goes unseen*:
//
//   * no context counts as seen empty (barrier/work.h), and no free leaves its order to the
//     device: each waits for all work of its context;
//   * drivers before CUDA 12.5: marks of the known streams prove nothing any more.
//
// A wait for a context covers all its work, seen or not; so memory is pooled as before.
//
// One flag each for the process, set once, by any thread, before the call in question goes on. The
// thread that sets one waits for the debts of frees (barrier/work.h). For the first flag it also
// waits until no driver call of Cistern's own is under way, at most 200 ms (capture_gate.h). It
// cannot fail.
#pragma once

#include "config/policy.h"

namespace cistern::shim {

// Takes the reason, a line for people that ends up in the log at level info and in the report: only
// the first one counts.
[[gnu::format(printf, 1, 2)]] void become_careful(const char* format, ...);

// The same if only work goes unseen; such a process may become careful later.
[[gnu::format(printf, 1, 2)]] void work_goes_unseen(const char* format, ...);

bool is_work_unseen();
// nullptr: no work goes unseen.
const char* why_work_is_unseen();

bool careful();
// nullptr: the process is not careful.
const char* why_careful();

// At load: unknown functions of the driver make the process careful (entry/unknown.h).
void watch_unknown_functions(const config::Policy& policy);
// To be called after cuInit succeeded: logs how many unknown functions the driver has, and checks
// for links to them.
void tell_unknown_functions();

}  // namespace cistern::shim
