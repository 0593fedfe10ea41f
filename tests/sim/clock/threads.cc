// SPDX-License-Identifier: Apache-2.0
// Which threads are Cistern's own, from their creation on: the object creates them detached and
// with all signals blocked, as no program and no simulated device does. The caller is no proof,
// because a sanitizer's runtime passes the call on. Any thread.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#include "tests/sim/clock/clock.h"

namespace {

using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

bool creates_own(const pthread_attr_t* attributes) {
  int detached = PTHREAD_CREATE_JOINABLE;
  if (attributes == nullptr) return false;
  pthread_attr_getdetachstate(attributes, &detached);
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  return detached == PTHREAD_CREATE_DETACHED && sigismember(&blocked, SIGTERM) == 1 &&
         sigismember(&blocked, SIGSEGV) == 1;
}

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
  static auto* real = reinterpret_cast<Create*>(dlsym(RTLD_NEXT, "pthread_create"));
  const bool own = creates_own(attributes);
  if (own) test_clock::own_thread_begins();
  const int code = real(thread, attributes, run, argument);
  if (own && code != 0) test_clock::own_thread_failed();
  return code;
}
