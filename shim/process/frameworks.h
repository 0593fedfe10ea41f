// SPDX-License-Identifier: Apache-2.0
// Frameworks among the loaded files that pool device memory themselves (config/frameworks.h),
// unless the environment switches that off. For the report: asked once, at exit, where programs
// have set what they set. Reads names and makes no call but to the loader's list and the
// environment.
#pragma once

#include "shim/process/advice.h"

namespace cistern::shim {

Frameworks frameworks_that_pool();

}  // namespace cistern::shim
