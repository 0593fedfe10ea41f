// SPDX-License-Identifier: Apache-2.0
// Blocks with memory of their own: those that --skip, --skip-grads and --skip-sizes name. They
// reuse no memory, and no other block reuses theirs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/plan/tool/input.h"

namespace cistern::alloc::plan {

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
