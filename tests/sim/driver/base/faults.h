// SPDX-License-Identifier: Apache-2.0
//
// Planted faults, latencies and takings (SIMCUDA_FAIL, SIMCUDA_LATENCY, SIMCUDA_TAKES), resolved to
// one slot per call so that asking costs an index. Any thread; uses are counted atomically.
#pragma once

#include <cstdint>

#include "base/fault_rules.h"
#include "table/calls.h"

namespace simcuda {

// Once, before the first question.
void prepare_faults(const FaultRules& rules);

struct Fault {
  CUresult code = CUDA_SUCCESS;  // none
  bool after_work = false;
};

// Counts one use of the call and says how it shall fail.
Fault planted_fault(Call id);

uint64_t planted_latency_ns(Call id);
// That it takes once its work is done.
uint64_t planted_latency_after_ns(Call id);

// Bytes of device memory.
uint64_t planted_taking(Call id);

}  // namespace simcuda
