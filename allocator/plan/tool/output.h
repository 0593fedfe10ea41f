// SPDX-License-Identifier: Apache-2.0
// Plans as files: for a replay (../FORMAT.md), as MiniMalloc's table of lifetimes with offsets, and
// as a picture.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "allocator/plan/problem.h"
#include "allocator/plan/tool/input.h"

namespace cistern::alloc::plan {

struct Result {
  const Input& input;
  const Problem& problem;
  std::span<const uint64_t> offsets;
  uint64_t bytes;
  uint64_t alignment;
};

std::string plan_text(const Result& result);
std::string table_text(const Result& result);
// A line for each block that takes over memory of an earlier one, and a summary. The words are
// those of CISTERN_PRINT_LOG.
std::string reuse_text(const Result& result);
// Lifetimes from left to right, offsets upwards, and a line at the lower bound.
std::string picture_text(const Result& result);

}  // namespace cistern::alloc::plan
