// SPDX-License-Identifier: Apache-2.0
//
// What load() makes of the environment and the settings file: the policy, the texts that were
// given, and the lines for the user. Written by load() and its steps, on one thread; afterwards
// read-only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "config/line.h"
#include "config/policy.h"
#include "config/table.h"

namespace cistern::config {

enum class Status : int {
  kOk,   // act by the policy
  kBad,  // stay inactive; `error` says why, policy.on_error what to do. Only that member counts
  kOff,  // stay inactive and silent: CISTERN_POOL=off
};

enum class Origin : uint8_t { kDefault, kEnv, kFile, kLauncher };

// What was given for one setting. `text` is nullptr when nothing was.
struct Given {
  const char* text;
  uint16_t line;  // in the settings file, for Origin::kFile
  Origin origin;
};

inline constexpr size_t kMaxWarnings = 64;
inline constexpr size_t kStorageBytes = size_t{64} << 10;
inline constexpr size_t kMaxFileBytes = size_t{32} << 10;
inline constexpr size_t kMaxValueBytes = 4096;

// All zero bytes before load(), so that a `constinit Loaded` costs no page until it is used.
struct Loaded {
  Status status;
  Policy policy;
  // "cistern: error: what; value seen; what is allowed; example", no newline; empty unless kBad.
  Line error;
  // Unknown CISTERN_* names, one line each.
  Line warnings[kMaxWarnings];
  size_t warning_count;
  bool launched;            // by `cistern run`, which has shown the warnings: say them no more
  size_t warnings_dropped;  // beyond kMaxWarnings; the last line says how many

  std::array<Given, kMaxRows> given;  // by row of kTable; not used by CISTERN_GPU_LIMIT_<n>
  Given given_device[kMaxDevices];    // CISTERN_GPU_LIMIT_<n>

  // Everything the members above point to: the program may change its environment later.
  char storage[kStorageBytes];
  size_t storage_used;
};

// What was given for a row by name; Origin::kDefault when nothing was.
Given given_for(const Loaded& loaded, const char* name);

}  // namespace cistern::config
