// SPDX-License-Identifier: Apache-2.0
// The plans of CISTERN_PLAN=FILE (allocator/plan/FORMAT.md): read when the first context appears,
// and kept as long as the process lives. One context of a device at a time has the device's plan.
// If the file cannot be used, one message says so, and there is no plan.
//
// One thread at a time: the lock of the contexts.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>

#include "allocator/plan/plan_file.h"

namespace cistern::shim {

// Gives the context with this number the plan of a device with `total` bytes, or its plans of
// several threads. Empty if the file has none, or if another context has it.
std::span<const alloc::plan::Plan> claim_plan(CUdevice device, uint64_t total, uint32_t context);
// The context is gone: another one may get its plan.
void give_up_plan(uint32_t context);

}  // namespace cistern::shim
