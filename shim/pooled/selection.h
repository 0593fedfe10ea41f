// SPDX-License-Identifier: Apache-2.0
// Finding the allocation that a program uses wrongly: CISTERN_ONLY_SIZES, CISTERN_POOL_FIRST and
// the settings of chosen_sites.h let only some requests be pooled. Each other request gets the same
// as without Cistern: a driver allocation of its own, really freed, as long as the driver has
// memory. Any thread.
#pragma once

#include <cstdint>

namespace cistern::shim {

// Whether a request of `bytes` is to be pooled. To be asked once for each request, because those of
// the chosen sizes are counted.
bool selected(uint64_t bytes);

}  // namespace cistern::shim
