// SPDX-License-Identifier: Apache-2.0
#include "shim/nvtx/ranges.h"

namespace cistern::shim {

uint32_t current_range() { return 0; }

uint32_t range_count() { return 0; }

Range range_of(uint32_t /*range*/) { return {}; }

}  // namespace cistern::shim
