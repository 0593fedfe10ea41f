// SPDX-License-Identifier: Apache-2.0
// The routes by which a program reaches the driver, other than calling an exported symbol: dlsym,
// dlvsym and cuGetProcAddress. Each asks the real function first and gives out our hook only in
// place of exactly the symbol that the real answer is. Any thread.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

// After the real cuGetProcAddress put `*function`: the hook in its place, if it has one.
void reroute(const char* asked, int version, cuuint64_t flags, void** function);

}  // namespace cistern::shim
