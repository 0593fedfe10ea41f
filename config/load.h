// SPDX-License-Identifier: Apache-2.0
// From the environment and the settings file to one immutable Policy. load() runs once per process,
// before main(), from the object's ELF constructor and with that constructor's envp; tests and
// `cistern-config` call it too. It allocates nothing, prints nothing, leaves errno alone and costs
// a few microseconds when nothing is set. Not thread-safe; afterwards a Loaded is read-only.
//
// A value comes from the environment, which includes the launcher's options; else from the file
// named by CISTERN_CONFIG; else it is the default. One bad value or conflict makes the whole result
// kBad: Cistern never applies a part of the settings.
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
  kOk,   // apply the policy
  kBad,  // stay inactive. `error` says why; of the policy only on_error may be read
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
  bool launched;            // by `cistern run`, which has printed the warnings: do not repeat them
  size_t warnings_dropped;  // beyond kMaxWarnings; the last line says how many

  std::array<Given, kMaxRows> given;  // by row of kTable; not used by CISTERN_GPU_LIMIT_<n>
  Given given_device[kMaxDevices];    // CISTERN_GPU_LIMIT_<n>

  // Copies of all texts that the members above point to: the program may change its environment.
  char storage[kStorageBytes];
  size_t storage_used;
};

// What was given for a row by name; Origin::kDefault when nothing was.
Given given_for(const Loaded& loaded, const char* name);

// `envp` is nullptr, or ends with a nullptr as main's third argument does. `out` may hold an
// earlier result. CISTERN_LAUNCHER is no setting: in it `cistern run` lists, separated by commas,
// the names that it set from its options. They get Origin::kLauncher instead of Origin::kEnv.
void load(const char* const* envp, Loaded& out);

// The policy with nothing set.
Policy default_policy();

// The policy in force on one line: "defaults", or the settings that were given, as
// NAME=value with blanks between. Returns the length; what does not fit is cut off.
size_t format_policy_line(const Loaded& loaded, char* out, size_t size);

// The steps of load() that other files have or call: gathering texts, and warnings. Private to
// config/. Each step returns false after it has written the one error line.

// Settings in the environment; names nobody knows become warnings.
bool collect_environment(const char* const* envp, Loaded& out);

// Settings in the file at `path` that the environment left unset. After a bad line only
// CISTERN_ON_ERROR is still read: it decides what happens about the error.
bool collect_file(const char* path, Loaded& out);

// Sets `slot` to the slot of a name, or to nullptr if there is no such setting. False if the number
// of the device is too high.
bool find_slot(std::string_view name, Loaded& out, Given*& slot);

// Copies `text` into out.storage. nullptr if there is no room; then the error line names `name`.
const char* keep_text(std::string_view name, std::string_view text, Loaded& out);

// A warning for a name without a row. `where` is "" or "file:line: ".
void warn_unknown(const char* where, std::string_view name, Loaded& out);

// The next free line for a warning. When all are taken the last one says that there are more.
Line& next_warning(Loaded& out);

}  // namespace cistern::config
