// SPDX-License-Identifier: Apache-2.0
// The one thread of our own. It sees to idle memory while the program makes no call
// (ContextPool::work_in_background): asks what became clean, returns what was idle for long, does
// the work that frees put off. Only with FLAGS_free_idle_memory=true or
// FLAGS_eager_delete_scope=false.
//
// It begins with the first thing that needs it, ends when nothing is left, and may begin again. It
// takes no signals and is no thread of the program: it calls the driver, never a hook. It makes no
// call while a capture is in progress (each one passes the gate), in a context that may be about to
// end (it counts as a visitor), in a forked child, or once the process ends; and a process whose
// other threads have all ended does not go on for its sake.
#pragma once

namespace cistern::shim {

// Some memory becomes idle, or (`now`) work was put off: there is the thread from now on. False
// where it cannot be had. Any thread.
bool attend(bool now);

// Whether the calling thread may call the driver: always, but for the reaper once the process ends.
bool may_call();
// Whether it is the reaper.
bool in_background();

// The process ends: no call of the reaper begins any more. Waits for one that is under way, for 100
// ms at most: it may be a free, which waits for the device.
void stop_reaper();

void reset_reaper_after_fork();

}  // namespace cistern::shim
