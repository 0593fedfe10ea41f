// SPDX-License-Identifier: Apache-2.0
// The host side as the rest of the object sees it.
#pragma once

#include "config/policy.h"

namespace cistern::shim {

// Part::at_start. Null in libcistern-device.so, which leaves malloc alone.
[[gnu::weak, gnu::visibility("hidden")]] void start_host_memory(const config::Policy& policy);

}  // namespace cistern::shim
