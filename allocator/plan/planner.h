// SPDX-License-Identifier: Apache-2.0
// Makes a plan: offsets for blocks whose lifetimes are known. First greedy packings, then exact
// search on parts that are small enough, then packings under a sinking ceiling (packings.h). It
// ends early at the lower bound. Lifetimes of different parts do not overlap.
//
// Any thread may plan; each plan is one thread's. Without memory there is no plan. Once the budget
// is spent, the best plan so far is the result.
#pragma once

#include <cstdint>
#include <span>

#include "allocator/plan/problem.h"

namespace cistern::alloc::plan {

// The best plan so far, for people who wait.
struct Progress {
  const char* step;
  uint64_t bytes, lower_bound;
};

struct PlannerOptions {
  uint64_t steps = UINT64_MAX;        // Budget: about one look at one block
  uint64_t deadline_ns = UINT64_MAX;  // of os::now_ns()
  // Offsets of an earlier plan for the same number of blocks, or empty. If they are valid for this
  // problem, the search begins with them, and the result takes no more bytes.
  std::span<const uint64_t> last_plan;
  void (*report)(void* context, const Progress& progress) = nullptr;
  void* context = nullptr;
};

struct Planned {
  Array<uint64_t> offsets;
  uint64_t bytes = 0;
  const char* winner = "";    // the step that found it
  uint64_t memory_bytes = 0;  // the peak of the planner's tables
};

// False without memory.
bool plan(const Problem& problem, const PlannerOptions& options, Planned& out);

// Level 0 of memory_optimize as a plan: memory goes only to blocks of exactly the same requested
// size. So each size has places of its own, as many as its most live blocks at a time. Fewer are
// never enough, so there is nothing to search. `lifetimes`: those that the problem was built from.
// False without memory.
bool plan_same_size(const Problem& problem, std::span<const Lifetime> lifetimes, Planned& out);

}  // namespace cistern::alloc::plan
