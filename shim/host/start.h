// SPDX-License-Identifier: Apache-2.0
// The host side as the rest of the object sees it.
#pragma once

#include "allocator/host/host_pool.h"
#include "config/policy.h"

// Null in libcistern-device.so, which leaves malloc alone.
#define CISTERN_HOST_ONLY [[gnu::weak, gnu::visibility("hidden")]]

namespace cistern::shim {

// Part::at_start.
CISTERN_HOST_ONLY void start_host_memory(const config::Policy& policy);

// Part::at_cuda_start.
CISTERN_HOST_ONLY void start_releasing_idle_host_memory(const config::Policy& policy);

// Part::at_bad_start: no chunk is ever taken, so the program's first block counts as one.
CISTERN_HOST_ONLY void tell_bad_settings_at_first_block();

// What malloc got from the pool, for the report.
CISTERN_HOST_ONLY bool describe_host_memory(alloc::host::HostUsage* out);

}  // namespace cistern::shim
