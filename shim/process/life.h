// SPDX-License-Identifier: Apache-2.0
// The life of the process: load, the first successful cuInit, fork, exit. That cuInit writes the
// log lines for the user. A child forked after it passes every call to the driver. At an orderly
// exit the parts are called (settings.h): twice, before and after the driver has ended. No CUDA
// call is made at load, nor by the parts once the driver has ended.
#pragma once

namespace cistern::shim {

// cuInit succeeded in this process; any thread. The first call logs the messages of the settings,
// arranges for forked children, and ends pooling if the driver is not `complete`, i.e. lacks
// functions that the pools need.
void cuda_started(bool complete);

// Has the parts called at exit while the driver answers (Part::before_driver_ends). Exit handlers
// run in the reverse order of their registration: this one is registered in the first call, which
// comes after the driver has registered its own. Any thread, with CUDA in use.
void end_before_the_driver();

// What is wrong with the settings, in a process that uses what they are about: one line, once. Any
// thread, also inside malloc.
void tell_bad_settings();

// Fork handlers that stay until the process is over. Those of pthread_atfork() belong to the object
// that registers them, and exit() takes them away as if it were unloaded: glibc ends the process if
// another thread is between two of them then. This object is never unloaded (-z nodelete).

// What pthread_atfork() calls, also in its errors; `object`: at whose end they go, nullptr: at
// none. LSB Core, __register_atfork. In libcistern.so ours (host/jemalloc.cc), else the C
// library's. Any thread.
int register_fork_handlers(void (*prepare)(), void (*parent)(), void (*child)(),
                           void* object) noexcept asm("__register_atfork");

inline int at_fork(void (*prepare)(), void (*parent)(), void (*child)()) {
  return register_fork_handlers(prepare, parent, child, nullptr);
}

}  // namespace cistern::shim
