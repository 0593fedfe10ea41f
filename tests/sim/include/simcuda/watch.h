// SPDX-License-Identifier: Apache-2.0
//
// What a test, or a pool under test, may say to the simulated driver's watcher and ask of it.
// Found with dlsym in the libcuda the process uses: on a real driver there is nothing to find.
// Any thread, except inside host callbacks' own locks; without SIMCUDA_RACES the first two do
// nothing.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A pool handed out `bytes` bytes inside memory it has from the driver, or took them back. From the
// first block on, work may touch that driver allocation only within one live block. Ending a block
// says nothing about order: work in flight may still use it, later work may not.
void simcuda_block_begin(uint64_t address, uint64_t bytes);
void simcuda_block_end(uint64_t address);

typedef enum SimcudaFinding {
  SIMCUDA_RACE = 0,
  SIMCUDA_INVALID_ACCESS = 1,
  SIMCUDA_INVALID_FREE = 2,
  SIMCUDA_LEAK = 3,
  SIMCUDA_ORDER_LOST = 4,
  SIMCUDA_ORDER_ADDED = 5,
  SIMCUDA_ALL_FINDINGS = 6
} SimcudaFinding;

// Findings of a kind, or of all, so far.
uint64_t simcuda_findings(SimcudaFinding kind);

// Virtual memory as it is now, of the whole process.
typedef struct SimcudaVirtualMemory {
  uint64_t handles;  // of physical memory, not released yet
  uint64_t mappings, mapped_bytes;
  uint64_t reservations, reserved_bytes;  // addresses
} SimcudaVirtualMemory;
void simcuda_virtual_memory(SimcudaVirtualMemory* out);

// What memory pools have of their devices now, how often they took some, and how often they gave
// some back.
typedef struct SimcudaMemoryPools {
  uint64_t reserved_bytes, taken, given_back;
} SimcudaMemoryPools;
void simcuda_memory_pools(SimcudaMemoryPools* out);

// The devices' time, and a step forward in it: of use with SIMCUDA_CLOCK=virtual.
int64_t simcuda_clock_ns(void);
void simcuda_clock_advance(uint64_t ns);

#ifdef __cplusplus
}
#endif
