// SPDX-License-Identifier: Apache-2.0
// Threads that Cistern adds to a process: the background thread (background.h) and the one that
// answers importers of IPC handles (ipc/service.h). They are named "cistern", block all signals and
// keep no process alive whose own threads have all ended. Any thread may start one.
#pragma once

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

}  // namespace cistern::shim
