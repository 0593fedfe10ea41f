// SPDX-License-Identifier: Apache-2.0
// Ways to end, whatever is under way.
// Blocks are live, freed and in use by work that is under way, and two threads go on allocating.
// The argument names the way.

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "../driver_codes.h"

namespace {

std::atomic<int> g_rounds{0};
std::atomic<bool> g_stop{false};

void churn(CUcontext context) {
  cuCtxSetCurrent(context);
  while (!g_stop) {
    CUdeviceptr block = 0;
    if (cuMemAlloc(&block, g_rounds % 3 == 0 ? 3 * kMiB : 5000) != CUDA_SUCCESS) return;
    cuMemFree(block);
    ++g_rounds;
  }
}

void start_work(CUcontext context) {
  CUstream stream;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  for (int i = 0; i < 6; ++i) {
    CUdeviceptr block = 0;
    cuMemAlloc(&block, i % 2 != 0 ? 3 * kMiB : 1000);
    cuMemsetD8Async(block, 1, 1000, stream);  // takes its time (SIMCUDA_LATENCY)
    if (i < 3) cuMemFree(block);
  }
  void* pinned = nullptr;
  cuMemHostAlloc(&pinned, 5000, 0);
  for (int i = 0; i < 2; ++i) std::thread(churn, context).detach();
  while (g_rounds < 100) std::this_thread::yield();
}

// A library with a static object that frees when it goes.
void use_library(bool close) {
  void* library = dlopen("libholder.so", RTLD_NOW | RTLD_LOCAL);
  auto* hold = reinterpret_cast<void (*)(CUdeviceptr)>(dlsym(library, "hold_until_the_end"));
  CUdeviceptr block = 0;
  cuMemAlloc(&block, 4 * kMiB);
  if (hold != nullptr) hold(block);
  if (close) std::printf("closed %d\n", dlclose(library));
}

[[noreturn]] void end(const char* way) {
  std::printf("ending by %s\n", way);
  std::fflush(stdout);
  if (std::strcmp(way, "_exit") == 0) _exit(3);
  if (std::strcmp(way, "quick_exit") == 0) std::quick_exit(4);
  if (std::strcmp(way, "abort") == 0) std::abort();
  if (std::strcmp(way, "SIGTERM") == 0) raise(SIGTERM);
  if (std::strcmp(way, "SIGKILL") == 0) raise(SIGKILL);
  if (std::strcmp(way, "other thread") == 0) std::thread([] { std::exit(5); }).join();
  if (std::strcmp(way, "pthread_exit") == 0) {
    // The process goes on until its last thread ends.
    g_stop = true;
    pthread_exit(nullptr);
  }
  if (std::strcmp(way, "never") == 0) pause();
  const rlimit small{100, 100};
  if (std::strcmp(way, "no long files") == 0 && setrlimit(RLIMIT_FSIZE, &small) != 0) std::abort();
  if (std::strcmp(way, "elsewhere") == 0 && chdir("/") != 0) std::abort();
  std::exit(6);
}

}  // namespace

int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "exit";
  CUcontext context = use_device(0);
  if (std::strcmp(way, "library") == 0) use_library(false);
  if (std::strcmp(way, "closed library") == 0) use_library(true);
  start_work(context);
  end(way);
}
