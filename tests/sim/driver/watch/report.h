// SPDX-License-Identifier: Apache-2.0
//
// Where the watcher writes: one paragraph per finding, its first line greppable, in one write to
// SIMCUDA_RACES_FILE or stderr. After a while only the count goes on. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace simcuda {

enum class Finding : uint8_t {
  kRace,
  kInvalidAccess,
  kInvalidFree,
  kLeak,
  kOrderLost,
  kOrderAdded
};
inline constexpr size_t kFindingKinds = 6;

// False where the file (empty: stderr) cannot be written. `fatal`: a finding ends the process.
bool open_reports(const std::string& file, bool fatal);

// `text` is one line without its end, `details` whole lines.
void report(Finding kind, const std::string& text, const std::string& details);

uint64_t findings(Finding kind);

}  // namespace simcuda
