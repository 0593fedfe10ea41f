// SPDX-License-Identifier: Apache-2.0
// What `cistern plan` was asked for.
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
  // Planned is one iteration, or one of each thread, or else the whole recording.
  bool iteration = false, threads = false;
  // Of memory_optimize. 0: memory is reused by blocks of the same size alone.
  unsigned level = 1;
  std::optional<uint64_t> steps;
  std::optional<uint64_t>
      alignment;  // else 512 for calls, which the driver keeps, and 1 for tables

  // How long the search may take. Without a limit in the options it is 10 s; one in steps stands
  // alone, so that its plan is the same on every machine.
  double most_seconds() const { return seconds.value_or(steps ? kMostSeconds : 10); }
  static constexpr double kMostSeconds = 1e6;
};

// False after one line in `problem`.
bool read_options(int argc, char** argv, Options& out, std::string& problem);

}  // namespace cistern::alloc::plan
