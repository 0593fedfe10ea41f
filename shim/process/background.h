// SPDX-License-Identifier: Apache-2.0
// The one thread of our own: it works while the program makes no call (order/contexts/reaper.h says
// at what). Only with FLAGS_free_idle_memory=true or FLAGS_eager_delete_scope=false.
//
// It begins with the first thing that needs it, ends when nothing is left, and may begin again. It
// takes no signals and is no thread of the program: it calls the driver, never a hook. It is not
// there in a forked child, nor once the process ends; and a process whose other threads have all
// ended does not go on for its sake.
#pragma once

#include <cstdint>

namespace cistern::shim {

// There is one in a process, and it stays where it is.
struct BackgroundWork {
  // Does what there is to do, asking may_call() before each call to the driver; true if there will
  // be more. Called by one thread at a time.
  bool (*round)();
  uint64_t (*pause_ns)();  // between two rounds
};

// There is something to do, or (`now`) at once: there is the thread from now on. False where it
// cannot be had. Any thread.
bool attend(bool now, const BackgroundWork* work);

// Whether the calling thread may call the driver: always, but for the background thread once the
// process ends.
bool may_call();
// Whether it is the background thread.
bool in_background();

// The process ends: no call of the background thread begins any more. Waits for one that is under
// way, for 100 ms at most: it may be a free, which waits for the device.
void stop_background();

void reset_background_after_fork();

}  // namespace cistern::shim
