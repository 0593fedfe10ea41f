// SPDX-License-Identifier: Apache-2.0
// Frameworks among the loaded files that pool device memory themselves (config/frameworks.h),
// unless the environment switches that off. For the report: read once, at exit, when programs have
// made their settings. It reads only the loader's list and the environment.
#pragma once

#include "shim/process/advice.h"

namespace cistern::shim {

Frameworks frameworks_that_pool();

}  // namespace cistern::shim
