// SPDX-License-Identifier: Apache-2.0
// For programs that free memory and see what goes back to the driver, and what the process has
// beside its own thread. What the driver holds is read from the simulator's trace.
#pragma once

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "../test_clock.h"

using test_clock::live_through;
using test_clock::live_until;

struct Traced {
  int allocations = 0, frees = 0;
  int held() const { return allocations - frees; }
};

// The process's calls so far. A line is whole or not there.
inline Traced traced() {
  Traced calls;
  std::ifstream file(std::getenv("SIMCUDA_TRACE"));
  for (std::string line; std::getline(file, line);) {
    const bool good = line.find(" -> 0 ") != std::string::npos;
    if (good && line.starts_with("cuMemAlloc_v2 ")) ++calls.allocations;
    if (good && line.starts_with("cuMemFree")) ++calls.frees;
  }
  return calls;
}

// A sanitizer's runtime has one of its own from the first thread on.
inline int g_tasks = 0;

inline int tasks() {
  int count = 0;
  DIR* folder = opendir("/proc/self/task");
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

inline std::vector<CUdeviceptr> allocate(std::initializer_list<size_t> sizes) {
  std::vector<CUdeviceptr> blocks(sizes.size());
  size_t i = 0;
  for (const size_t bytes : sizes) {
    if (cuMemAlloc(&blocks[i], bytes) != CUDA_SUCCESS) std::printf("no block of %zu\n", bytes);
    cuMemsetD8(blocks[i++], 1, std::min(bytes, kMiB));
  }
  return blocks;
}

inline void free_all(const std::vector<CUdeviceptr>& blocks) {
  for (const CUdeviceptr block : blocks) {
    if (const CUresult code = cuMemFree(block); code != CUDA_SUCCESS)
      std::printf("free %d\n", code);
  }
}

inline void say_returned() {
  live_until([] { return traced().held() == 0; });
  std::printf("returned 1\n");
}

inline void say_alone() {
  live_until([] { return tasks() <= g_tasks; }, /*step_ms=*/100);
  std::printf("no more tasks than at the start 1\n");
}

// Before the first call to CUDA.
inline void count_tasks() {
  pid_t task = 0;
  std::thread([&] { task = gettid(); }).join();
  while (tgkill(getpid(), task, 0) == 0) usleep(100);
  g_tasks = tasks();
}
