// SPDX-License-Identifier: Apache-2.0
// Threads that wait for the one that opens the log leave it the processor.
// Four begin with CUDA at once. That opening takes long is the doing of the program's own
// `open`, which the other objects of the process call, too.
//
//   slow_open             all of them go on
//   slow_open cancelled   one that was cancelled before begins alone, then the four

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstring>
#include <thread>
#include <vector>

#include "../driver_codes.h"

extern "C" int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  if (std::strstr(path, "slow.log") != nullptr) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
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
  if (argc > 1) cancelled();
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) threads.emplace_back(begin);
  for (std::thread& thread : threads) thread.join();
  std::printf("begun\n");
  return 0;
}
