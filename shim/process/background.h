// SPDX-License-Identifier: Apache-2.0
// Threads that Cistern adds to a process: the background thread, and the one that answers importers
// of IPC handles (ipc/service.h). They are named "cistern", block all signals and keep no process
// alive whose own threads have all ended. Any thread may start one.
//
// The background thread does what is due while the program makes no call: tend_all_pools() in
// order/contexts/context_life.cc, record/record.h. It is started with FLAGS_free_idle_memory=true,
// FLAGS_eager_delete_scope=false or CISTERN_RECORD, and else once more memory is idle than may
// always be (allocator/idle_work.h). It starts when there is something to do, ends when nothing is
// left (unless some work keeps it), and may be started again. It calls the driver directly, never a
// hook. A forked child has no such thread. Once the process ends, the thread begins no driver call.
#pragma once

#include <cstdint>

namespace cistern::shim {

// An error number, 0 if the thread runs. `run` begins with an OwnThread, and asks alone() at least
// once a second.
int start_own_thread(void* (*run)(void*));

// Counts the calling thread as one of Cistern's until it ends.
class OwnThread {
 public:
  OwnThread();
  ~OwnThread();
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;
};

// Whether the program's threads have all ended, and only Cistern's are left: then the caller, one
// of these, calls become_thread_of_the_program() and returns from its function.
bool alone();

// The C library calls exit() in the last thread that ends: it runs the program's exit handlers, and
// does so with the program's signal mask.
void become_thread_of_the_program();

// In a forked child: the parent's threads do not exist here.
void forget_own_threads();

// What the thread does. The process has few such objects, which must never go away.
struct BackgroundWork {
  // Does what there is to do, asking may_call() before each call to the driver; true if there will
  // be more. Two threads may be in it for a moment, where one ends and another begins.
  bool (*round)();
  uint64_t (*pause_ns)();  // between two rounds
  bool calls_driver;       // the thread has to stop before the driver does
  bool keeps_thread;       // it cannot be started again: it stays, and looks each second
};

// Asks for the background thread: there is something to do of this kind, or (`now`) to do at once.
// Starts the thread unless it runs. False if there is none: it cannot be created, the process ends,
// or this is a forked child. Any thread.
bool attend(bool now, const BackgroundWork* work);

// Whether the calling thread may call the driver: always, but for the background thread once the
// process ends.
bool may_call();
// Whether the calling thread is the background thread.
bool in_background();

// The process ends: the background thread begins no driver call any more. Waits for a round that is
// under way, but no longer than 100 ms: the driver call in it may be a free, which waits for the
// device.
void stop_background();

// In a child forked after cuInit: there is no such thread any more. In any child: the parent's does
// not exist here.
void reset_background_after_fork();
void forget_background_thread();

}  // namespace cistern::shim
