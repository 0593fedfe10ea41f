// SPDX-License-Identifier: Apache-2.0
// The options of `cistern plan`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "allocator/plan/tool/input.h"

namespace cistern::alloc::plan {

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

}  // namespace cistern::alloc::plan
