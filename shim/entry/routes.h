// SPDX-License-Identifier: Apache-2.0
// The routes by which a program reaches the driver, other than calling an exported symbol: dlsym,
// dlvsym and cuGetProcAddress. Each calls the real function first, and replaces its result by the
// hook of exactly the returned symbol. Any thread.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

// After the real cuGetProcAddress answered *function: puts the hook of that function in its place,
// if there is one. The other arguments are the program's, for the log.
void reroute(const char* asked, int version, cuuint64_t flags, void** function);

// Whether NVIDIA's runtime was given cuGetExportTable: by the driver's own tables it makes primary
// contexts, and no hook sees that. Nobody else is known to ask cuGetProcAddress for it.
bool runtime_has_tables();

// A look-up of another function than the driver's: `in_front_of` is told what was found in a
// library that the program opened, and says what the program gets. One such function; constant from
// the call on.
struct StandIn {
  const char* name;
  void* (*in_front_of)(void* found);
};
void stand_in_for(const StandIn& function);

}  // namespace cistern::shim
