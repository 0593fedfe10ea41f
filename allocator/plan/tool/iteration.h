// SPDX-License-Identifier: Apache-2.0
// Of a whole recording the one iteration that a plan is for (../period.h).
#pragma once

#include <string>

#include "allocator/plan/tool/input.h"

namespace cistern::alloc::plan {

// Leaves in `input` the requests of one iteration. What outlives it is Input::outside. False after
// one line in `problem`.
bool take_iteration(Input& input, std::string& problem);

}  // namespace cistern::alloc::plan
