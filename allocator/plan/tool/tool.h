// SPDX-License-Identifier: Apache-2.0
// What `cistern plan` is asked for, what it plans, and what it writes. A plan is made of a
// recording, of a trace of allocations and frees (`cistern trace --csv`), or of a table of
// lifetimes as MiniMalloc has them. One thread.
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
  bool iteration = false;  // only one iteration of a program that repeats it
  bool of_thread = false;  // only one iteration of one of its threads
  std::vector<Outside> outside;
  uint64_t before = 0, times = 0;  // requests before the first iteration, number of iterations
};

// The blocks that get memory of their own.
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
  bool log = false;  // of reuse: needs the blocks' origins
  Skip skip;

  bool origins() const { return log || skip.by_name(); }
};

// --- input.cc: files. They are checked: one that makes no sense is refused with one line.

// False after one line in `problem`.
bool read_input(std::span<const uint8_t> file, const Wanted& wanted, Input& out,
                std::string& problem);

// --- options.cc: what is asked for, and the requests that it selects

struct Options {
  std::string file, out, last, svg;
  Wanted wanted;
  std::optional<double> seconds;
  // What is planned: one iteration, one iteration of each thread, or else the whole recording.
  bool iteration = false, threads = false;
  // The level of memory_optimize. 0: only blocks of the same size reuse memory.
  unsigned level = 1;
  std::optional<uint64_t> steps;
  std::optional<uint64_t>
      alignment;  // default: 512 for calls, as the driver has it, and 1 for tables

  // How long the search may take. By default it is 10 s. With a limit in steps there is no limit of
  // time, so that the plan is the same on every machine.
  double most_seconds() const { return seconds.value_or(steps ? kMostSeconds : 10); }
  static constexpr double kMostSeconds = 1e6;
};

// False after one line in `problem`.
bool read_options(int argc, char** argv, Options& out, std::string& problem);

// The requests that are planned. All, or, with --period iteration or thread,
// those of one iteration (../period.h). The blocks that --skip, --skip-grads and --skip-sizes name
// get memory of their own: they reuse no memory, and no other block reuses theirs.

// Reduces `input` to the requests of one iteration. Those that outlive it go to Input::outside. On
// failure false, with one line in `problem`.
bool take_iteration(Input& input, std::string& problem);

// One iteration of each thread that repeats itself, for the most active threads that fit into a
// file. On failure false, with one line in `problem`.
bool take_iterations(const Input& input, std::vector<Input>& out, std::string& problem);

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

// --- output.cc: plans as files. For a replay (../FORMAT.md), as MiniMalloc's table of lifetimes
// with offsets, and as a picture.

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
