// SPDX-License-Identifier: Apache-2.0
// What a plan is made of: a recording, a trace of allocations and frees (`cistern trace --csv`), or
// a table of lifetimes as MiniMalloc has them. Files are checked: one that makes no sense is
// refused with one line.
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

// Where a block of a recording comes from: for the log of reuse, and for blocks that are not to be
// reused. Requests of one range and one call site have one origin.
struct Origin {
  std::string text;                // its range, or where it has none its call site
  std::vector<std::string> names;  // all that a glob may mean, as in CISTERN_SKIP_OPT_SET
};

// A request of an iteration that the pool serves.
struct Outside {
  uint64_t from, bytes, stream;
};

struct Input {
  std::vector<Lifetime> lives;    // in the order of the requests
  std::vector<uint64_t> streams;  // handles, 0 for none; empty: no request has one
  std::vector<uint32_t> threads;  // of a recording: which one made the request
  std::vector<std::string> ids;   // of a table of lifetimes
  // Who made each request, as numbers in `known`. Empty if nobody asked, and of a trace.
  std::vector<uint32_t> origins;
  std::vector<Origin> known;
  std::vector<uint64_t> offsets;  // of an earlier plan, or empty
  bool counts_calls = false;      // times are numbers of calls
  uint64_t calls = 0;             // then how many; what ends there is never freed
  uint32_t device = 0;
  bool iteration = false;  // it is one of a program that repeats it (selection.h), with
  bool of_thread = false;  // the same of one of its threads
  std::vector<Outside> outside;
  uint64_t before = 0, times = 0;  // requests before it began first, and how often it was seen
};

// What gets memory of its own (selection.h).
struct Skip {
  std::string globs;  // separated by commas
  bool grads = false;
  config::SizeRanges sizes{};

  bool by_name() const { return grads || !globs.empty(); }
};

// What of a recording is planned: without a number the lowest device that allocates.
struct Wanted {
  std::optional<uint64_t> device;
  Memory memory = Memory::linear;
  bool log = false;  // of what takes over whose memory: its names are needed
  Skip skip;

  bool origins() const { return log || skip.by_name(); }
};

// False after one line in `problem`.
bool read_input(std::span<const uint8_t> file, const Wanted& wanted, Input& out,
                std::string& problem);

}  // namespace cistern::alloc::plan
