// SPDX-License-Identifier: Apache-2.0
// Of a whole recording the one iteration that a plan is for (../period.h).
#pragma once

#include <string>
#include <vector>

#include "allocator/plan/tool/input.h"

namespace cistern::alloc::plan {

// Leaves in `input` the requests of one iteration. What outlives it is Input::outside. False after
// one line in `problem`.
bool take_iteration(Input& input, std::string& problem);

// The same of each thread that repeats itself: the most active ones, if there are more than fit
// into a file. False after one line in `problem`.
bool take_iterations(const Input& input, std::vector<Input>& out, std::string& problem);

}  // namespace cistern::alloc::plan
