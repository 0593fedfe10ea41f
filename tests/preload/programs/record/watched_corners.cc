// SPDX-License-Identifier: Apache-2.0
// Whoever watches gets by with little and holds nobody up.
//
// Not the loader, nor a thread that is cancelled or has the least stack there is, nor the end of
// the process in a signal handler; and errno is the program's.
//
// Usage: watched_corners constructor LIBRARY | cancelled | small_stack | errno | exits MICROSECONDS
#include <cuda.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../sanitized.h"

namespace {

CUcontext context = nullptr;

int pair(size_t bytes) {
  CUdeviceptr block = 0;
  const CUresult allocated = cuMemAlloc(&block, bytes);
  return allocated != CUDA_SUCCESS ? allocated : cuMemFree(block);
}

void* in_thread(void* cancelled) {
  cuCtxSetCurrent(context);
  if (cancelled != nullptr) pthread_cancel(pthread_self());
  const int code = pair(size_t{4} << 20);
  if (cancelled != nullptr) pthread_testcancel();
  return reinterpret_cast<void*>(static_cast<long>(code));
}

void run_thread(bool cancelled, size_t stack) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (stack != 0) pthread_attr_setstacksize(&attributes, stack);
  pthread_t thread;
  void* result = nullptr;
  pthread_create(&thread, &attributes, in_thread, cancelled ? &context : nullptr);
  pthread_join(thread, &result);
  std::printf("thread: %s\n", result == PTHREAD_CANCELED ? "cancelled"
                              : result == nullptr        ? "0"
                                                         : "an error");
}

// Code for sanitizers needs several times what it needs without.
size_t least_stack() {
  const auto least = static_cast<size_t>(sysconf(_SC_THREAD_STACK_MIN));
  return with_asan() || with_tsan() ? 8 * least : least;
}

// Of a call that succeeds, the very first one among them, and of one that does not.
void keep_errno() {
  constexpr size_t kSizes[] = {4096, 4096, size_t{4} << 20, size_t{1} << 45};
  for (const size_t bytes : kSizes) {
    CUdeviceptr block = 0;
    errno = 77;
    const CUresult allocated = cuMemAlloc(&block, bytes);
    std::printf("errno: %d", errno);
    errno = 78;
    const CUresult freed = cuMemFree(block);
    std::printf(" %d, results %d %d\n", errno, allocated, freed);
  }
}

[[noreturn]] void pairs_until_a_signal(const char* microseconds) {
  std::signal(SIGALRM, [](int) { std::exit(0); });
  const itimerval timer{{0, 0}, {0, std::atoi(microseconds)}};
  setitimer(ITIMER_REAL, &timer, nullptr);
  for (;;) pair(4096);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || cuInit(0) != CUDA_SUCCESS ||
      cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS) {
    return 2;
  }
  if (argc > 2 && std::strcmp(argv[1], "exits") == 0) pairs_until_a_signal(argv[2]);
  if (argc > 2) std::printf("library: %d\n", dlopen(argv[2], RTLD_NOW) != nullptr);
  if (std::strcmp(argv[1], "cancelled") == 0) run_thread(/*cancelled=*/true, 0);
  if (std::strcmp(argv[1], "errno") == 0) keep_errno();
  if (std::strcmp(argv[1], "small_stack") == 0) run_thread(/*cancelled=*/false, least_stack());
  std::printf("pair: %d\n", pair(4096));
}
