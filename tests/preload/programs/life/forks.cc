// SPDX-License-Identifier: Apache-2.0
// Forks of every kind while other threads allocate.
// Those threads hold locks that the child will never see released. After cuInit a child has a
// working malloc and is told by the driver that it cannot go on; before it, it works like any
// process. The argument says when, each child says nothing but by its exit status.

#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "../sanitized.h"

extern char** environ;

namespace {

constexpr int kForks = 60;

std::atomic<bool> g_stop{false};
std::atomic<int> g_failures{0};

void churn(CUcontext context) {
  cuCtxSetCurrent(context);
  for (int i = 0; !g_stop; ++i) {
    CUdeviceptr block = 0;
    if (cuMemAlloc(&block, i % 4 == 0 ? 3 * kMiB : 2000) != CUDA_SUCCESS) ++g_failures;
    if (cuMemFree(block) != CUDA_SUCCESS) ++g_failures;
    if (i % 64 == 0 && cuCtxSynchronize() != CUDA_SUCCESS) ++g_failures;
  }
}

// What the driver refuses, and what must work.
int orphan(CUdeviceptr inherited) {
  CUdeviceptr block = 0;
  size_t free, total;
  int wrong = 0;
  for (int i = 0; i < 3; ++i) {
    wrong += cuMemAlloc(&block, 2000) != CUDA_ERROR_NOT_INITIALIZED ? 1 : 0;
    wrong += cuMemFree(inherited) != CUDA_ERROR_NOT_INITIALIZED ? 1 : 0;
    wrong += cuMemGetInfo(&free, &total) != CUDA_ERROR_NOT_INITIALIZED ? 1 : 0;
    wrong += cuCtxSynchronize() != CUDA_ERROR_NOT_INITIALIZED ? 1 : 0;
  }
  const std::vector<int> numbers(100000, 1);
  return wrong + (numbers.back() == 1 ? 0 : 1);
}

int worker() {
  use_device(0);
  CUdeviceptr block = 0;
  int wrong = 0;
  for (int i = 0; i < 100; ++i) {
    wrong += cuMemAlloc(&block, 5000) != CUDA_SUCCESS ? 1 : 0;
    wrong += cuMemFree(block) != CUDA_SUCCESS ? 1 : 0;
  }
  return wrong;
}

void wait_for(pid_t child, int* bad) {
  int status = -1;
  if (child <= 0 || waitpid(child, &status, 0) != child || status != 0) ++*bad;
}

void fork_all(int (*child)(CUdeviceptr), CUdeviceptr inherited) {
  int bad = 0;
  for (int i = 0; i < kForks; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      const int wrong = child(inherited);
      if (i % 2 != 0) _exit(wrong);
      std::exit(wrong);
    }
    wait_for(pid, &bad);
  }
  std::printf("forked: %d bad children\n", bad);
}

// The child shares the parent's memory until it execs.
[[gnu::noinline]] pid_t vfork_and_exec(char* const* words) {
  const pid_t pid = vfork();
  if (pid == 0) {
    execvp(words[0], words);
    _exit(9);
  }
  return pid;
}

[[maybe_unused]] void spawn_all() {
  int bad = 0;
  char name[] = "true";
  char* words[] = {name, nullptr};
  for (int i = 0; i < 10; ++i) {
    pid_t pid = vfork_and_exec(words);
    wait_for(pid, &bad);
    if (posix_spawnp(&pid, name, nullptr, nullptr, words, environ) != 0) pid = -1;
    wait_for(pid, &bad);
    if (std::system("exit 0") != 0) ++bad;
  }
  std::printf("spawned: %d bad children\n", bad);
}

void after() {
  CUcontext context = use_device(0);
  CUdeviceptr inherited = 0;
  SAY(cuMemAlloc(&inherited, 2000));
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(churn, context);
  std::fflush(stdout);
  fork_all(orphan, inherited);
  if (!with_tsan()) spawn_all();  // it does not support vfork
  g_stop = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("parent: %d failures\n", g_failures.load());
  SAY(cuMemFree(inherited));
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IONBF, 0);  // children must not print it again
  if (argc > 1 && std::strcmp(argv[1], "before") == 0) {
    // Looked up, but not called: there is no CUDA in this process yet.
    dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
    fork_all([](CUdeviceptr) { return worker(); }, 0);
    std::printf("parent: %d wrong\n", worker());
  } else if (argc > 1 && std::strcmp(argv[1], "never") == 0) {
    fork_all([](CUdeviceptr) { return 0; }, 0);
    std::printf("parent: %d wrong\n", worker());
  } else {
    after();
  }
  return 0;
}
