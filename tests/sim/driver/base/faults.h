// SPDX-License-Identifier: Apache-2.0
//
// Planted faults and latencies (SIMCUDA_FAIL, SIMCUDA_LATENCY), resolved to one slot per call so
// that asking costs an index. Any thread; uses are counted atomically.
#pragma once

#include <cstdint>

#include "base/settings.h"
#include "table/calls.h"

namespace simcuda {

// Once, before the first question.
void prepare_faults(const Settings& settings);

// Counts one use of the call; the code it shall fail with, or CUDA_SUCCESS.
CUresult planted_fault(Call id);

uint64_t planted_latency_ns(Call id);

}  // namespace simcuda
