// SPDX-License-Identifier: Apache-2.0
// What the pools of all contexts of the process share. Any thread.
#pragma once

#include "allocator/shared.h"

namespace cistern::shim {

alloc::Shared& shared();

// A `what` ("context", "stream") turned up whose creation no hook saw. Its work cannot be followed,
// so nothing is taken for clean any more (Reclaim::freeze). Warns once.
void distrust(const char* what);

}  // namespace cistern::shim
