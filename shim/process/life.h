// SPDX-License-Identifier: Apache-2.0
// The life of the process: load, the first successful cuInit, fork, exit. The first cuInit writes
// the log lines for the user. A child forked after it passes every call to the driver. At an
// orderly exit each part (settings.h) is called twice: while the driver still answers, and after it
// has ended. Cistern makes no CUDA call at load, and none after the driver has ended.
#pragma once

namespace cistern::shim {

// To be called after each cuInit that succeeded; any thread. The first call logs the messages of
// the settings and registers the fork handlers. It switches pooling off if the driver is not
// `complete`, i.e. lacks functions that the pools need.
void cuda_started(bool complete);

// Has Part::before_driver_ends called at exit, while the driver still answers. The first call
// registers an exit handler for that. Exit handlers run in the reverse order of their registration,
// so the call must come after the driver has registered its own: once CUDA is in use. Any thread.
void end_before_the_driver();

// Logs what is wrong with the settings: one line, once a process. To be called when the process
// first uses something that settings are about. Any thread, also inside malloc.
void tell_bad_settings();

// Fork handlers that stay until the process is over. Handlers of pthread_atfork() belong to the
// object that registers them, and exit() removes them as if the object were unloaded. If another
// thread is between two handlers at that moment, glibc aborts the process. Cistern's object is
// never unloaded (-z nodelete), so its handlers may belong to no object.

// The function behind pthread_atfork() (LSB Core, __register_atfork); returns the same errors.
// `object`: the handlers are removed when it is unloaded; nullptr: never. In libcistern.so this is
// Cistern's own (host/jemalloc.cc), else the C library's. Any thread.
int register_fork_handlers(void (*prepare)(), void (*parent)(), void (*child)(),
                           void* object) noexcept asm("__register_atfork");

inline int at_fork(void (*prepare)(), void (*parent)(), void (*child)()) {
  return register_fork_handlers(prepare, parent, child, nullptr);
}

}  // namespace cistern::shim
