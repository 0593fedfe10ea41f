// SPDX-License-Identifier: Apache-2.0
// Fork handlers that stay until the process is over. Those of pthread_atfork() belong to the object
// that registers them, and exit() takes them away as if it were unloaded: glibc ends the process if
// another thread is between two of them then. This object is never unloaded (-z nodelete).
#pragma once

namespace cistern::shim {

// What pthread_atfork() calls, also in its errors; `object`: at whose end they go, nullptr: at
// none. LSB Core, __register_atfork. In libcistern.so ours (host/jemalloc.cc), else the C
// library's. Any thread.
int register_fork_handlers(void (*prepare)(), void (*parent)(), void (*child)(),
                           void* object) noexcept asm("__register_atfork");

inline int at_fork(void (*prepare)(), void (*parent)(), void (*child)()) {
  return register_fork_handlers(prepare, parent, child, nullptr);
}

}  // namespace cistern::shim
