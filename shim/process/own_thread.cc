// SPDX-License-Identifier: Apache-2.0
#include "shim/process/background.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

#include "allocator/base/threads.h"

namespace cistern::shim {
namespace {

constexpr size_t kStackBytes = 256 << 10;  // address space; pages are used once they are touched

constinit std::atomic<unsigned> own_threads{0};
constinit alloc::Mutex mutex;
constinit sigset_t signals_of_program{};  // of the last thread that started one of ours

void keep(const sigset_t& signals) {
  const alloc::LockGuard guard(mutex);
  signals_of_program = signals;
}

}  // namespace

// A new thread inherits the signal mask, so all signals are blocked while it is created. If the
// stack cannot hold the thread-local storage of the program's libraries, pthread_create returns
// EINVAL. Then the stack gets the default size.
int start_own_thread(void* (*run)(void*)) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_t attributes;
  if (const int code = pthread_attr_init(&attributes); code != 0) return code;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  size_t usual;
  pthread_attr_getstacksize(&attributes, &usual);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  keep(before);
  pthread_t thread;
  int code = pthread_create(&thread, &attributes, run, nullptr);
  if (code == EINVAL) {
    pthread_attr_setstacksize(&attributes, usual);
    code = pthread_create(&thread, &attributes, run, nullptr);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return code;
}

OwnThread::OwnThread() {
  prctl(PR_SET_NAME, "cistern");
  own_threads.fetch_add(1);
}

OwnThread::~OwnThread() { own_threads.fetch_sub(1); }

// Only Cistern's threads and the main thread are left, and main() ended by pthread_exit: after that
// the main task has no program file in /proc. This opens no file, because the program may rely on
// the number of its next descriptor.
bool alone() {
  struct stat tasks;
  const nlink_t own_links = 2;  // of the folder; each task adds one
  if (stat("/proc/self/task", &tasks) != 0) return false;
  if (tasks.st_nlink != own_links + 1 + own_threads.load()) return false;
  char c;
  return readlink("/proc/self/exe", &c, 1) < 0 && errno == ENOENT &&
         readlink("/proc/thread-self/exe", &c, 1) > 0;
}

void become_thread_of_the_program() {
  const alloc::LockGuard guard(mutex);
  pthread_sigmask(SIG_SETMASK, &signals_of_program, nullptr);
}

void forget_own_threads() {
  mutex.reset();
  own_threads.store(0);
}

}  // namespace cistern::shim
