// SPDX-License-Identifier: Apache-2.0
// The input of a plan: a recording, a trace of allocations and frees (`cistern trace --csv`), or a
// table of lifetimes as MiniMalloc has them. Files are checked: one that makes no sense is refused
// with one line.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/plan/problem.h"
#include "allocator/record/event.h"
#include "config/policy.h"

namespace cistern::alloc::plan {

// Where a block of a recording comes from. Used for the log of reuse, and to select blocks that
// must not be reused. Requests with the same range and call site have the same origin.
struct Origin {
  std::string text;                // its range, or its call site if it has no range
  std::vector<std::string> names;  // all names that a glob may match, as in CISTERN_SKIP_OPT_SET
};

// A request of an iteration that has no place in the plan: a pool serves it.
struct Outside {
  uint64_t from, bytes, stream;
};

struct Input {
  std::vector<Lifetime> lives;    // in the order of the requests
  std::vector<uint64_t> streams;  // handles, 0 for none; empty: no request has one
  std::vector<uint32_t> threads;  // of a recording: the thread that made the request
  std::vector<std::string> ids;   // of a table of lifetimes
  // The origin of each request, as an index in `known`. Empty if not wanted, and for a trace.
  std::vector<uint32_t> origins;
  std::vector<Origin> known;
  std::vector<uint64_t> offsets;  // of an earlier plan, or empty
  bool counts_calls = false;      // times are numbers of calls
  uint64_t calls = 0;             // the number of calls; a block that ends there is never freed
  uint32_t device = 0;
  bool iteration = false;  // only one iteration of a program that repeats it (selection.h)
  bool of_thread = false;  // only one iteration of one of its threads
  std::vector<Outside> outside;
  uint64_t before = 0, times = 0;  // requests before the first iteration, number of iterations
};

// The blocks that get memory of their own (selection.h).
struct Skip {
  std::string globs;  // separated by commas
  bool grads = false;
  config::SizeRanges sizes{};

  bool by_name() const { return grads || !globs.empty(); }
};

// What is planned of a recording. Without `device`, it is the lowest device that allocates.
struct Wanted {
  std::optional<uint64_t> device;
  Memory memory = Memory::linear;
  bool log = false;  // of reuse (output.h): needs the blocks' origins
  Skip skip;

  bool origins() const { return log || skip.by_name(); }
};

// False after one line in `problem`.
bool read_input(std::span<const uint8_t> file, const Wanted& wanted, Input& out,
                std::string& problem);

}  // namespace cistern::alloc::plan
