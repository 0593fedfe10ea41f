// SPDX-License-Identifier: Apache-2.0
// Whether something may go on that no hook sees. The process becomes *careful* once a call may have
// handed over work that touches any memory, made a stream or a context, or begun a capture, and
// stays so to its end, since nothing tells when that is over. From then on
//
//   * nothing that was freed becomes clean (Reclaim::freeze): marks and synchronisations of the
//     contexts that are known prove nothing about others. What the pools hold goes back to the
//     driver, whose own free waits for everything, when memory is short;
//   * the capture gate is closed (capture_gate.h), as by a capture without an end. So no driver
//     call is made that the program did not ask for, and its requests go to the driver, which
//     answers them as it would without Cistern, and gets them back at their frees.
//
// So a careful process has the driver's own order, results and speed, but for what the pools held
// before. Blocks that it freed by then wait for no more than they did.
//
// One flag for the process, set once, by any thread, before the call in question goes on; who sets
// it waits until no driver call of Cistern's own is under way, 200 ms at most (capture_gate.h). It
// cannot fail, and makes no driver call.
#pragma once

#include "config/policy.h"

namespace cistern::shim {

// Takes the reason, a line for people that ends up in the log at level info and in the report: only
// the first one counts.
[[gnu::format(printf, 1, 2)]] void become_careful(const char* format, ...);

bool careful();
// nullptr: the process is not careful.
const char* why_careful();

// At load: unknown functions of the driver make the process careful (entry/unknown.h).
void watch_unknown_functions(const config::Policy& policy);
// cuInit has succeeded: says how many there are, and looks for links to them.
void tell_unknown_functions();

}  // namespace cistern::shim
