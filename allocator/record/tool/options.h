// SPDX-License-Identifier: Apache-2.0
// The options of `cistern trace`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "allocator/record/event.h"
#include "allocator/record/tallies.h"

namespace cistern::alloc::tool {

enum class View : uint8_t { summary, csv, events, folded, json, json_events };
enum class By : uint8_t { site, range, phase, thread };
using Sort = TallyOrder;
// The last view has two options: --events --json.
inline constexpr const char* kViews[] = {"summary", "csv", "events", "folded", "json"};
inline constexpr const char* kBys[] = {"site", "range", "phase", "thread"};
inline constexpr const char* kSorts[] = {"peak", "end", "temporary", "calls", "bytes"};

struct Options {
  std::string file;
  std::string svg;  // where the picture goes, if anywhere
  View view = View::summary;
  std::optional<By> by;
  std::optional<Sort> sort;
  uint64_t top = 10;

  // Select blocks: their allocation must match everything that is set.
  std::optional<uint64_t> device, thread;
  std::optional<Memory> memory;
  std::optional<std::string> site, range, phase;  // globs
  uint64_t min_bytes = 0, max_bytes = UINT64_MAX;
  uint64_t from_ns = 0, to_ns = UINT64_MAX;  // blocks freed later count as live at the end
};

// False after one line in `problem`.
bool read_options(int argc, char** argv, Options& out, std::string& problem);

}  // namespace cistern::alloc::tool
