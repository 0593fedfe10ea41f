// SPDX-License-Identifier: Apache-2.0
//
// simcuda/watch.h.
#include "simcuda/watch.h"

#include "base/clock.h"
#include "memory/pool_space.h"
#include "memory/vmm.h"
#include "watch/report.h"
#include "watch/watcher.h"

using namespace simcuda;

extern "C" {

__attribute__((visibility("default"))) void simcuda_block_begin(uint64_t address, uint64_t bytes) {
  watch_block_begun(address, bytes);
}

__attribute__((visibility("default"))) void simcuda_block_end(uint64_t address) {
  watch_block_ended(address);
}

__attribute__((visibility("default"))) uint64_t simcuda_findings(SimcudaFinding kind) {
  if (kind < SIMCUDA_ALL_FINDINGS) return findings(static_cast<Finding>(kind));
  uint64_t all = 0;
  for (size_t i = 0; i < kFindingKinds; ++i) all += findings(static_cast<Finding>(i));
  return all;
}

__attribute__((visibility("default"))) void simcuda_virtual_memory(SimcudaVirtualMemory* out) {
  const VirtualMemory now = virtual_memory();
  *out = {.handles = now.handles,
          .mappings = now.mappings,
          .mapped_bytes = now.mapped_bytes,
          .reservations = now.reservations,
          .reserved_bytes = now.reserved_bytes};
}

__attribute__((visibility("default"))) void simcuda_memory_pools(SimcudaMemoryPools* out) {
  const PoolTotals now = pool_totals();
  *out = {.reserved_bytes = now.reserved_bytes, .taken = now.taken, .given_back = now.given_back};
}

__attribute__((visibility("default"))) int64_t simcuda_clock_ns(void) { return now_ns(); }

__attribute__((visibility("default"))) void simcuda_clock_advance(uint64_t ns) { advance_ns(ns); }

}  // extern "C"
