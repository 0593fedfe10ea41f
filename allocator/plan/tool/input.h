// SPDX-License-Identifier: Apache-2.0
// What a plan is made of: a recording, a trace of allocations and frees (`cistern trace --csv`), or
// a table of lifetimes as MiniMalloc has them. Nothing in a file is trusted: one that makes no
// sense is refused with one line.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/plan/problem.h"
#include "allocator/record/event.h"

namespace cistern::alloc::plan {

struct Input {
  std::vector<Lifetime> lives;    // in the order of the requests
  std::vector<uint64_t> streams;  // handles, 0 for none; empty: no request has one
  std::vector<std::string> ids;   // of a table of lifetimes
  std::vector<uint64_t> offsets;  // of an earlier plan, or empty
  bool counts_calls = false;      // times are numbers of calls
  uint64_t calls = 0;             // then how many; what ends there is never freed
  uint32_t device = 0;
};

// What of a recording is planned: without a number the lowest device that allocates.
struct Wanted {
  std::optional<uint64_t> device;
  Memory memory = Memory::linear;
};

// False after one line in `problem`.
bool read_input(std::span<const uint8_t> file, const Wanted& wanted, Input& out,
                std::string& problem);

}  // namespace cistern::alloc::plan
