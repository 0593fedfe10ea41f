// SPDX-License-Identifier: Apache-2.0
// The settings of this process: read once, by the object's constructor or by a hook that another
// library's constructor calls before it, and constant from then on. Any thread.
#pragma once

#include "config/load.h"
#include "config/policy.h"

namespace cistern::shim {

// False: every call goes through to the driver untouched (CISTERN_POOL=off, a bad setting, a child
// forked after cuInit, a driver too old to pool on, a process with more rights than its user).
bool active();

// Whether pools are wanted or off. Two things let no part work: settings that are bad, and more
// rights than the user's who started the process (AT_SECURE): there no setting is read. Stays as it
// was at load.
bool settings_hold();

const config::Policy& policy();
// The effective policy on one line.
const char* policy_line();

// Static memory as the user asked for it: by which of its two names, and with which value.
struct StaticModeSeen {
  const char* name;
  int value;
};
inline StaticModeSeen static_mode_seen() {
  const config::StaticMode mode = policy().ge_use_static_memory;
  if (mode != config::StaticMode::kDynamic) return {"GE_USE_STATIC_MEMORY", static_cast<int>(mode)};
  const config::StaticMode other = policy().static_memory_policy;
  return {"CISTERN_STATIC_MEMORY_POLICY", static_cast<int>(other)};
}

// Reads the settings from `envp`, unless that has been done or they are another user's (AT_SECURE),
// and calls Part::at_load of every part (part.h) if they are valid. With CISTERN_ON_ERROR=abort a
// bad setting ends the process here, with status 78.
void load_settings(const char* const* envp);
// The result of reading them: messages, and whether the settings are valid.
const config::Loaded& loaded_settings();

// From now on active() is false.
void become_inactive();

}  // namespace cistern::shim
