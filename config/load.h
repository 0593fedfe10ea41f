// SPDX-License-Identifier: Apache-2.0
//
// From the environment and the settings file to one immutable Policy. load() runs once per process,
// before main(), from the object's ELF constructor and with that constructor's envp; tests and
// `cistern-config` call it too. It allocates nothing, prints nothing, leaves errno alone and costs
// a few microseconds when nothing is set. Not thread-safe; afterwards a Loaded is read-only.
//
// Values come from, first to last: the environment (the launcher's options are part of it), the
// file named by CISTERN_CONFIG, the default. One bad value or conflict makes the whole outcome bad:
// there is never half a policy.
#pragma once

#include <cstddef>

#include "config/loaded.h"

namespace cistern::config {

// `envp` ends with a nullptr, as main's third argument does, or is one. `out` may be used again.
// CISTERN_LAUNCHER is no setting: `cistern run` lists in it the names it set from its options, with
// commas between, which tells Origin::kLauncher from Origin::kEnv.
void load(const char* const* envp, Loaded& out);

// The policy with nothing set.
Policy default_policy();

// The policy in force on one line: "defaults", or the settings that were given, as
// NAME=value with blanks between. Returns the length; what does not fit is cut off.
size_t format_policy_line(const Loaded& loaded, char* out, size_t size);

}  // namespace cistern::config
