// SPDX-License-Identifier: Apache-2.0
// Selects the requests that are planned: all, or, with --period iteration or thread, those of one
// iteration (../period.h). The blocks that --skip, --skip-grads and --skip-sizes name get memory of
// their own: they reuse no memory, and no other block reuses theirs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/plan/tool/input.h"

namespace cistern::alloc::plan {

// Reduces `input` to the requests of one iteration. Those that outlive it go to Input::outside. On
// failure false, with one line in `problem`.
bool take_iteration(Input& input, std::string& problem);

// One iteration of each thread that repeats itself, for the most active threads that fit into a
// file. On failure false, with one line in `problem`.
bool take_iterations(const Input& input, std::vector<Input>& out, std::string& problem);

// --- blocks with memory of their own ---

// One entry of the option, and how many requests it matches.
struct SkipEntry {
  std::string text;
  uint64_t requests = 0;
};

struct Skipped {
  std::vector<bool> alone;  // of each request
  std::vector<SkipEntry> entries;
};

Skipped skipped_of(const Input& input, const Skip& skip);

// The lifetimes for the planner. A block with memory of its own lives as long as all others
// together.
std::vector<Lifetime> lives_to_plan(const Input& input, const Skipped& skipped);

}  // namespace cistern::alloc::plan
