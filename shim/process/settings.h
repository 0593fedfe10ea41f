// SPDX-License-Identifier: Apache-2.0
// The settings of this process: read once, before main or when another library's constructor gets
// here first, and constant from then on. Any thread.
#pragma once

#include "config/load.h"
#include "config/policy.h"

namespace cistern::shim {

// False: every call goes through to the driver untouched (CISTERN_POOL=off, a bad setting, a child
// forked after cuInit, a driver too old to pool on).
bool active();

const config::Policy& policy();
// The effective policy on one line.
const char* policy_line();

// Reads the settings from `envp`, unless that has been done, and lets the parts open (part.h). With
// CISTERN_ON_ERROR=abort a bad setting ends the process here, with status 78.
void load_settings(const char* const* envp);
// What reading them gave: messages and whether they hold.
const config::Loaded& loaded_settings();

// From now on active() is false.
void become_inactive();

}  // namespace cistern::shim
