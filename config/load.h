// SPDX-License-Identifier: Apache-2.0
// From the environment and the settings file to one immutable Policy. load() runs once per process,
// before main(), from the object's ELF constructor and with that constructor's envp; tests and
// `cistern-config` call it too. It allocates nothing, prints nothing, leaves errno alone and costs
// a few microseconds when nothing is set. Not thread-safe; afterwards a Loaded is read-only.
//
// Values come from, first to last: the environment (the launcher's options are part of it), the
// file named by CISTERN_CONFIG, the default. One bad value or conflict makes the whole outcome bad:
// there is never half a policy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "config/policy.h"
#include "config/table.h"
#include "config/text.h"

namespace cistern::config {

// What load() makes of the environment and the settings file: the policy, the texts that were
// given, and the lines for the user. Written by load() and its steps, on one thread; afterwards
// read-only.
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

// `envp` ends with a nullptr, as main's third argument does, or is one. `out` may be used again.
// CISTERN_LAUNCHER is no setting: `cistern run` lists in it the names it set from its options, with
// commas between, which tells Origin::kLauncher from Origin::kEnv.
void load(const char* const* envp, Loaded& out);

// The policy with nothing set.
Policy default_policy();

// The policy in force on one line: "defaults", or the settings that were given, as
// NAME=value with blanks between. Returns the length; what does not fit is cut off.
size_t format_policy_line(const Loaded& loaded, char* out, size_t size);

// The steps of load(): gathering texts, and checking them together. Private to config/. Each step
// returns false after it has written the one error line.

// Settings in the environment; names nobody knows become warnings.
bool collect_environment(const char* const* envp, Loaded& out);

// Settings in the file at `path` that the environment left unset. Of what stands behind a bad line
// only CISTERN_ON_ERROR is taken.
bool collect_file(const char* path, Loaded& out);

// The slot of a name, or nullptr when there is no such setting. False: a device number too high.
bool find_slot(std::string_view name, Loaded& out, Given*& slot);

// Copies into out.storage. nullptr: no room, and the error line is written.
const char* keep_text(std::string_view name, std::string_view text, Loaded& out);

// A warning for a name without a row. `where` is "" or "file:line: ".
void warn_unknown(const char* where, std::string_view name, Loaded& out);

// The next free line for a warning. When all are taken the last one says that there are more.
Line& next_warning(Loaded& out);

// Settings that conflict, after each is known to be good by itself.
bool check_conflicts(Loaded& out);

}  // namespace cistern::config
