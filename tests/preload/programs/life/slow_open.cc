// SPDX-License-Identifier: Apache-2.0
// Threads that wait for the one that opens the log leave it the processor.
// Four begin with CUDA at once. That opening takes long is the doing of the program's own
// `open`, which the other objects of the process call, too: it ends once the other threads have
// given up their processors by themselves ten times each. Threads that keep theirs hang here.
//
//   slow_open             all of them go on
//   slow_open cancelled   one that was cancelled before begins alone, then the four

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstring>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "../watch_time.h"

namespace {

constexpr int kThreads = 4;
std::atomic<pid_t> g_threads[kThreads];  // 0: not begun
std::atomic<bool> g_naps{false};         // whether `open` awaits that they nap

// How often a thread of this process gave up its processor by itself.
long naps_of(pid_t thread) {
  char path[64], line[128];
  long naps = 0;
  std::snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    std::sscanf(line, "voluntary_ctxt_switches: %ld", &naps);
  }
  std::fclose(file);
  return naps;
}

void await_naps_of_others() {
  constexpr long kNaps = 10;
  for (const std::atomic<pid_t>& thread : g_threads) {
    while (thread == 0) usleep(1000);
    if (thread == gettid()) continue;
    const long before = naps_of(thread);
    while (naps_of(thread) < before + kNaps) usleep(1000);
  }
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  if (std::strstr(path, "slow.log") != nullptr) {
    g_naps ? await_naps_of_others() : pthread_testcancel();
  }
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

namespace {

void begin() {
  CUdeviceptr block = 0;
  use_device(0);
  if (cuMemAlloc(&block, size_t{1} << 20) == CUDA_SUCCESS) cuMemFree(block);
}

// Ends at the latest where it asks.
void* begin_cancelled(void*) {
  pthread_cancel(pthread_self());
  begin();
  pthread_testcancel();
  return nullptr;
}

void cancelled() {
  pthread_t thread;
  void* end = nullptr;
  pthread_create(&thread, nullptr, begin_cancelled, nullptr);
  pthread_join(thread, &end);
  std::printf("cancelled: %d\n", end == PTHREAD_CANCELED);
}

}  // namespace

int main(int argc, char**) {
  end_if_it_hangs();
  if (argc > 1) cancelled();
  g_naps = argc == 1;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (std::atomic<pid_t>& own : g_threads) {
    threads.emplace_back([&own] {
      own = gettid();
      begin();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("begun\n");
  return 0;
}
