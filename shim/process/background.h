// SPDX-License-Identifier: Apache-2.0
// Threads that Cistern adds to a process: the background thread, and the one that answers importers
// of IPC handles (ipc/exporter.h). They are named "cistern" and block all signals. If all threads
// of the program have ended, they end the process. Any thread may start one.
//
// The background thread does what is due while the program makes no call: it tends the pools
// (tend_all_pools() in order/contexts/context_life.cc) and writes recordings (record/record.h).
// FLAGS_free_idle_memory=true, FLAGS_eager_delete_scope=false and CISTERN_RECORD need the thread.
// Otherwise it is first needed once more memory is idle than the pools may keep for ever
// (allocator/idle_work.h). It starts when there is something to do. It ends when nothing is left,
// unless some work keeps it, and may be started again. It calls the driver directly, never a hook.
// A forked child has no such thread. Once the process ends, the thread begins no driver call.
#pragma once

#include <cstdint>

namespace cistern::shim {

// Starts a thread. Returns 0, or an error number if there is no thread. `run` must begin with an
// OwnThread and call alone() at least once a second.
int start_own_thread(void* (*run)(void*));

// Counts the calling thread as one of Cistern's until it ends.
class OwnThread {
 public:
  OwnThread();
  ~OwnThread();
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;
};

// Whether all threads of the program have ended and only Cistern's are left. To be called by one of
// these: if true, it must call become_thread_of_the_program() and return from its function.
bool alone();

// The C library calls exit() in the last thread that ends, which so runs the program's exit
// handlers. This function gives the calling thread the program's signal mask for that.
void become_thread_of_the_program();

// In a forked child: the parent's threads do not exist here.
void forget_own_threads();

// One kind of work for the background thread. Such an object must never be destroyed.
struct BackgroundWork {
  // Does what there is to do; true if there will be more. It must ask may_call() before each call
  // to the driver. Two threads may run it at once for a moment, while one ends and the next begins.
  bool (*round)();
  uint64_t (*pause_ns)();  // between two rounds
  bool calls_driver;       // the thread must stop before the driver ends
  bool keeps_thread;       // nothing wakes this work: the thread stays and looks each second
};

// Tells the background thread that there is work of this kind; `now`: without a pause before it.
// Starts the thread unless it runs. False if there is no thread: it cannot be created, the process
// ends, or this is a forked child. Any thread.
bool attend(bool now, const BackgroundWork* work);

// Whether the calling thread may call the driver. False only in the background thread, once the
// process ends.
bool may_call();
// Whether the calling thread is the background thread.
bool in_background();

// To be called when the process ends: from now on the background thread begins no driver call.
// Waits for a round that is under way, but at most 100 ms: a free in it may wait for the device.
void stop_background();

// In a child forked after cuInit: no background thread runs here from now on. In any forked child:
// the parent's thread does not exist here, and another one may be started.
void reset_background_after_fork();
void forget_background_thread();

}  // namespace cistern::shim
