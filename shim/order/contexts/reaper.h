// SPDX-License-Identifier: Apache-2.0
// What the background thread (process/background.h) does while the program makes no call. For each
// pool it asks what became clean, releases what was idle for long, and does the work that frees
// deferred (ContextPool::work_in_background). It makes no driver call while a capture is in
// progress, because each one passes the capture gate, nor in a context that may be about to end,
// because the thread counts as a visitor.
#pragma once

namespace cistern::shim {

// Asks for the background thread, because some memory becomes idle or (`now`) a free deferred its
// work. False where there is no such thread. Any thread.
bool request_background_work(bool now);

}  // namespace cistern::shim
