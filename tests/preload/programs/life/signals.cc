// SPDX-License-Identifier: Apache-2.0
// Timers and jumps out of handlers in the midst of everything.
// A timer interrupts allocations, frees and waits (and their system calls, for its handler asks for
// no restart) in four threads; a handler leaves the program's own bad access, and its own endless
// loop, by siglongjmp.

#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>
#include <csetjmp>
#include <csignal>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "../driver_codes.h"

namespace {

std::atomic<int> g_ticks{0};
std::atomic<int> g_failures{0};
sigjmp_buf g_way_out;

void tick(int) { ++g_ticks; }
void leave(int) { siglongjmp(g_way_out, 1); }

void handle(int number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigaction(number, &action, nullptr);
}

void set_timer(int microseconds) {
  itimerval timer = {};
  timer.it_interval.tv_usec = timer.it_value.tv_usec = microseconds;
  setitimer(ITIMER_REAL, &timer, nullptr);
}

void expect(bool good) { g_failures += good ? 0 : 1; }

// Every block is written and read: no other thread may have it.
void allocate_under_fire(CUcontext context, unsigned char own) {
  CUdeviceptr blocks[8] = {};
  expect(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  for (int i = 0; i < 3000 || g_ticks < 200; ++i) {
    CUdeviceptr& block = blocks[i % 8];
    unsigned char seen = own;
    errno = 77;
    if (block != 0) {
      if (i % 16 == 0) expect(cuMemcpyDtoH(&seen, block, 1) == CUDA_SUCCESS);
      expect(seen == own);
      expect(cuMemFree(block) == CUDA_SUCCESS);
    }
    expect(cuMemAlloc(&block, i % 5 == 0 ? 2 * kMiB : 600) == CUDA_SUCCESS);
    expect(cuMemsetD8(block, own, 1) == CUDA_SUCCESS);
    if (i % 100 == 0) expect(cuCtxSynchronize() == CUDA_SUCCESS);
  }
  for (const CUdeviceptr block : blocks) expect(cuMemFree(block) == CUDA_SUCCESS);
}

void interrupted(CUcontext context) {
  handle(SIGALRM, tick);
  set_timer(300);
  std::vector<std::thread> threads;
  for (unsigned char i = 1; i <= 4; ++i) threads.emplace_back(allocate_under_fire, context, i);
  for (std::thread& thread : threads) thread.join();
  set_timer(0);
  std::printf("interrupted: %d failures\n", g_failures.load());
}

void jumped() {
  CUdeviceptr block = 0;
  SAY(cuMemAlloc(&block, 1000));
  auto* nobodys = static_cast<volatile int*>(
      mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  handle(SIGSEGV, leave);
  for (int i = 0; i < 3; ++i) {
    if (sigsetjmp(g_way_out, 1) == 0) *nobodys = 1;
    allocate_and_free(10, 1000);
  }
  handle(SIGSEGV, SIG_DFL);
  handle(SIGALRM, leave);
  if (sigsetjmp(g_way_out, 1) == 0) {
    set_timer(1000);
    for (;;) usleep(50);
  }
  set_timer(0);
  SAY(cuMemFree(block));
  allocate_and_free(10, 3 * kMiB);
}

}  // namespace

int main() {
  CUcontext context = use_device(0);
  interrupted(context);
  jumped();
  return 0;
}
