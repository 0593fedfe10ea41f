// SPDX-License-Identifier: Apache-2.0
//
// How a program's kernels reach the simulated CUDA: a *twin* is a host function that does what
// the kernel does, keyed by the kernel's mangled name. A shared object named in SIMCUDA_KERNELS
// exports `simcuda_kernels`, which lists its twins. C ABI, so that a twin library needs nothing
// of the simulator; twin.h adds a C++ way to write one.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// How a launch touches memory: only reads it; writes it, and perhaps reads it; updates it by atomic
// operations alone, which several launches may do at once.
enum { SIMCUDA_READS = 0, SIMCUDA_WRITES = 1, SIMCUDA_UPDATES = 2 };

// One stretch of memory a launch touches.
typedef struct SimcudaRange {
  uint64_t address;
  uint64_t bytes;
  int touch;  // one of those above
} SimcudaRange;

// What the kernel was launched with. `params[i]` points to a copy of the i-th parameter.
typedef struct SimcudaLaunch {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  void** params;
} SimcudaLaunch;

// Receives the ranges of one launch; `sink` is passed through untouched.
typedef void (*SimcudaRangeFn)(void* sink, SimcudaRange range);

typedef struct SimcudaKernel {
  const char* name;  // mangled, as cuModuleGetFunction is asked for it
  uint32_t param_count;
  const uint32_t* param_sizes;  // bytes of each parameter; each is aligned to its size in `extra`
  // Declares every byte the launch may touch. Called by the launching thread, at the launch.
  void (*ranges)(const SimcudaLaunch* launch, SimcudaRangeFn add, void* sink);
  // Does the work. Called later, by the thread that executes the stream. May touch only what
  // `ranges` declared and must not call CUDA.
  void (*body)(const SimcudaLaunch* launch);
  // How long it occupies the device, beside what `body` takes; null: no time. Called at the launch.
  uint64_t (*duration_ns)(const SimcudaLaunch* launch);
} SimcudaKernel;

// Adds twins from inside the program, before the first look-up of one of them: for tests without
// a library. Exported by the simulated driver.
void simcuda_add_kernels(const SimcudaKernel* kernels, size_t count);

// Exported by a twin library: its twins and their number. The array lives as long as the library.
const SimcudaKernel* simcuda_kernels(size_t* count);

#ifdef __cplusplus
}
#endif
