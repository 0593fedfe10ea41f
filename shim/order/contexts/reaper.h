// SPDX-License-Identifier: Apache-2.0
// What the background thread (process/background.h) does: it sees to idle memory while the program
// makes no call (ContextPool::work_in_background): asks what became clean, returns what was idle
// for long, does the work that frees put off. It makes no call while a capture is in progress (each
// one passes the gate), nor in a context that may be about to end (it counts as a visitor).
#pragma once

namespace cistern::shim {

// Some memory becomes idle, or (`now`) work was put off: the background thread sees to it. False
// where it cannot be had. Any thread.
bool request_background_work(bool now);

}  // namespace cistern::shim
