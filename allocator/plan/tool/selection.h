// SPDX-License-Identifier: Apache-2.0
// What of a trace is planned: every request, or with --period iteration or thread those of one
// iteration (../period.h). The blocks that --skip, --skip-grads and --skip-sizes name get memory of
// their own: they reuse no memory, and no other block reuses theirs.
#pragma once

#include <cstdint>
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

// --- blocks with memory of their own ---

// One that was asked for, and how many requests it matches.
struct SkipEntry {
  std::string text;
  uint64_t requests = 0;
};

struct Skipped {
  std::vector<bool> alone;  // of each request
  std::vector<SkipEntry> entries;
};

Skipped skipped_of(const Input& input, const Skip& skip);

// What the planner is to see: a block with memory of its own lives as long as all others together.
std::vector<Lifetime> lives_to_plan(const Input& input, const Skipped& skipped);

}  // namespace cistern::alloc::plan
