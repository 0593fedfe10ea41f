// SPDX-License-Identifier: Apache-2.0
//
// What befalls a device from outside, by the count of traced calls: memory that another process
// takes and gives back (SIMCUDA_PRESSURE), and the device's loss (SIMCUDA_LOSE). Any thread.
#pragma once

#include "base/cuda.h"
#include "base/fault_rules.h"
#include "table/calls.h"

namespace simcuda {

// Once, before the first question.
void prepare_misfortune(const FaultRules& rules);

// Counts the call; the code it shall answer because its device is lost or its context's work died,
// or CUDA_SUCCESS. A lost device fails every call that needs its context, for good; a dead context
// until it is destroyed or reset.
CUresult meet_misfortune(Call id);

}  // namespace simcuda
