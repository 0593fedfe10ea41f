// SPDX-License-Identifier: Apache-2.0
// Idle memory goes back to the driver, also while the program only sleeps.
// Memory that is freed and not used again, in a program that waits, captures, forks, resets and
// ends meanwhile: the argument names which. What the driver holds is read from the simulator's
// trace.

#include <pthread.h>
#include <sys/wait.h>

#include <atomic>

#include "idle_workplace.h"

namespace {

void allocate_and_free() { free_all(allocate({4096, 3 * kMiB, 20 * kMiB, 700'000})); }

// No call at all after the frees.
void sleeps() {
  allocate_and_free();
  say_returned();
  say_alone();
}

// The last work on the blocks takes its time (SIMCUDA_LATENCY), and nobody asks for its end.
void pending() {
  CUstream stream;
  cuStreamCreate(&stream, CU_STREAM_DEFAULT);
  const auto blocks = allocate({4096, 3 * kMiB});
  for (const CUdeviceptr block : blocks) cuMemsetD8Async(block, 2, 4096, stream);
  free_all(blocks);
  say_returned();
}

// The thread that works in the background comes with the first free and goes when it is done.
void threads() {
  for (int i = 0; i < 2; ++i) {
    const auto blocks = allocate({4096, 3 * kMiB});
    std::printf("before the first free: no more tasks than at the start %d\n",
                i != 0 || tasks() <= g_tasks);
    free_all(blocks);
    say_returned();
    say_alone();
  }
}

constexpr uint64_t kDayMs = 86'400'000;

// Nothing until a day is over. Ages are counted in eighths of the delay (idle_release.h), and the
// frees come right before one is full, and are seen to be idle by then: an age that is one too
// short ends seven eighths later.
void day() {
  test_clock::stop_before(/*ms=*/2000, kDayMs / 8);
  allocate_and_free();
  cuCtxSynchronize();
  const int before = traced().frees;
  live_through(/*ms=*/1000, /*steps=*/4);
  live_through(kDayMs - 1001, /*steps=*/200);
  std::printf("frees within a day: %d\n", traced().frees - before);
}

void day_after() {
  day();
  live_until([] { return traced().held() == 0; }, kDayMs / 100);
  std::printf("returned 1\n");
}

void kept() {
  free_all(allocate({5 * kMiB, 5 * kMiB, 5 * kMiB, 5 * kMiB}));
  live_until([] { return traced().held() <= 3; });
  std::printf("three are left, or less 1\n");
  say_alone();
}

// A set that is freed and allocated again, faster than the delay of 300 ms but for longer than it.
void loops() {
  test_clock::stop();
  for (int i = 0; i < 100; ++i) {
    free_all(allocate({5 * kMiB, 6 * kMiB, 7 * kMiB, 8 * kMiB, 4096}));
    cuCtxSynchronize();
    live_through(/*ms=*/i % 4 == 0 ? 290 : 30, /*steps=*/2);
  }
  std::printf("looped\n");
}

// Frees alone look after what is old.
void frees() {
  const CUdeviceptr old = allocate({9 * kMiB})[0];
  free_all({old});
  const int before = traced().frees;
  const auto returned = [=] {
    free_all(allocate({4096}));
    cuCtxSynchronize();
    return traced().frees > before;
  };
  if (before == 0) live_until(returned);
  std::printf("returned 1\n");
}

void captures() {
  CUstream stream;
  CUgraph graph = nullptr;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  test_clock::stop();
  allocate_and_free();
  SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  const int before = traced().frees;
  live_through(/*ms=*/500, /*steps=*/100);
  std::printf("frees during the capture: %d\n", traced().frees - before);
  SAY(cuStreamEndCapture(stream, &graph));
  std::printf("a graph %d\n", graph != nullptr);
  say_returned();
}

void forks() {
  allocate_and_free();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    std::printf("child: no more tasks than at the start %d\n", tasks() <= g_tasks);
    live_through(/*ms=*/1000, /*steps=*/100);
    std::printf("child: still %d\n", tasks() <= g_tasks);
    std::exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("child ended with %d\n", WEXITSTATUS(status));
  say_returned();
}

// Whoever frees in the background is in the middle of it: in a call that takes longer than the
// clock is moved.
void exits() {
  test_clock::stop();
  allocate_and_free();
  live_until([] { return traced().frees != 0; });
  std::exit(3);
}

void exits_soon() {
  test_clock::stop();
  allocate_and_free();
  live_through(/*ms=*/300, /*steps=*/60);
  std::exit(3);
}

void resets(CUdevice device) {
  for (int i = 0; i < 100; ++i) {
    CUcontext context = nullptr;
    cuDevicePrimaryCtxRetain(&context, device);
    cuCtxSetCurrent(context);
    allocate_and_free();
    test_clock::move_ms(20);  // all of it is due; how far that is when the reset comes, varies
    usleep(static_cast<useconds_t>(i) * 100);
    if (const CUresult code = cuDevicePrimaryCtxReset(device); code != CUDA_SUCCESS) {
      std::printf("reset %d\n", code);
    }
  }
  say_alone();
}

std::atomic<int> g_signals{0};

// A signal to the process whose threads all block it stays pending.
void signals() {
  signal(SIGUSR1, [](int) { ++g_signals; });
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &one, nullptr);
  allocate_and_free();
  for (int i = 0; i < 50; ++i) {
    kill(getpid(), SIGUSR1);
    usleep(2000);  // for a thread that would take it: a slow one is seen with a later signal
  }
  std::printf("blocked: %d\n", g_signals.load());
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  std::printf("then: %d\n", g_signals.load());
}

// The process goes on until its last thread ends.
void leaves_main() {
  std::atexit([] { std::printf("left\n"); });
  allocate_and_free();
  // Whichever of the two threads ends first, the process goes on until both have.
  std::thread([] { usleep(50'000); }).detach();
  pthread_exit(nullptr);
}

// What is free is free, whoever is just returning it to the driver.
void told() {
  const auto free_bytes = [] {
    size_t bytes = 0, total = 0;
    cuMemGetInfo(&bytes, &total);
    return bytes;
  };
  const size_t all = free_bytes();
  int less = 0, more = 0;
  for (int i = 0; i < 50; ++i) {
    allocate_and_free();
    for (int j = 0; j < 10; ++j) {
      const size_t now = free_bytes();
      less += now < all;
      more += now > all;
      // The calls that return it take time; it is asked before, during and after them.
      test_clock::move_ns(300'000);
      usleep(100);
    }
  }
  std::printf("less was free %d times, more %d times\n", less, more);
}

int calls() {
  int lines = 0;
  std::ifstream file(std::getenv("SIMCUDA_TRACE"));
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

// An exit handler from before the first call to the driver runs after the driver's own ones.
void exits_late() {
  for (int i = 0; i < 20; ++i) allocate_and_free();
  test_clock::settle();
  test_clock::move_ms(100);  // all of it is due
}

void say_calls() {
  const int before = calls();
  live_through(/*ms=*/1000, /*steps=*/100);
  std::printf("calls once the driver is shut down: %d\n", calls() - before);
}

// More idle than the default strategy keeps.
void many() {
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 50; ++i) blocks.push_back(allocate({4 * kMiB})[0]);
  free_all(blocks);
  live_until([] { return traced().held() <= 16; });
  std::printf("few are left 1\n");
  say_alone();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "";
  count_tasks();
  if (way == "exits_late") std::atexit(say_calls);
  use_device(0);
  if (way == "sleeps") sleeps();
  if (way == "pending") pending();
  if (way == "threads") threads();
  if (way == "day") day();
  if (way == "day_after") day_after();
  if (way == "kept") kept();
  if (way == "loops") loops();
  if (way == "frees") frees();
  if (way == "captures") captures();
  if (way == "forks") forks();
  if (way == "exits") exits();
  if (way == "exits_late") exits_late();
  if (way == "exits_soon") exits_soon();
  if (way == "resets") resets(0);
  if (way == "signals") signals();
  if (way == "leaves_main") leaves_main();
  if (way == "many") many();
  if (way == "told") told();
  return 0;
}
