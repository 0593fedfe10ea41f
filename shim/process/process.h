// SPDX-License-Identifier: Apache-2.0
// The life of the process: settings are read before main, the first successful cuInit says what has
// to be said, a child forked after that hands everything to the driver, the report is written at
// exit. No CUDA call is made at load or at exit.
#pragma once

#include "config/policy.h"

namespace cistern::shim {

// False: every call goes through to the driver untouched (CISTERN_POOL=off, a bad setting, a child
// forked after cuInit, a driver too old to pool on).
bool active();

const config::Policy& policy();
// The effective policy on one line.
const char* policy_line();

// cuInit succeeded in this process. The first time: messages, fork handlers.
void cuda_started();
bool cuda_used();

}  // namespace cistern::shim
