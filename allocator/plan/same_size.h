// SPDX-License-Identifier: Apache-2.0
// Level 0 of memory_optimize as a plan: memory goes only to blocks of exactly the same requested
// size. So each size has places of its own, as many as its most live blocks at a time. Fewer are
// never enough, so there is nothing to search.
//
// Any thread; each plan is one thread's.
#pragma once

#include <span>

#include "allocator/plan/planner.h"

namespace cistern::alloc::plan {

// `lifetimes`: those that the problem was built from. False without memory.
bool plan_same_size(const Problem& problem, std::span<const Lifetime> lifetimes, Planned& out);

}  // namespace cistern::alloc::plan
