// SPDX-License-Identifier: Apache-2.0
// The routes by which a program reaches the driver, other than calling an exported symbol: dlsym,
// dlvsym and cuGetProcAddress. Each calls the real function first, then replaces the returned
// function by that function's own hook. Any thread.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

// To be called after the real cuGetProcAddress set *function: replaces it by its hook, if there is
// one. The other arguments are the program's and go to the log.
void reroute(const char* asked, int version, cuuint64_t flags, void** function);

// Whether NVIDIA's runtime got cuGetExportTable: it creates primary contexts by the driver's own
// tables, which no hook sees. No other library is known to get it from cuGetProcAddress.
bool runtime_has_tables();

// Replaces a function that is not the driver's. If the program looks up `name` by dlsym in a
// library that it opened, in_front_of() takes the function found and returns the one that the
// program gets. The process has one StandIn, which must not change or go away after stand_in_for().
struct StandIn {
  const char* name;
  void* (*in_front_of)(void* found);
};
void stand_in_for(const StandIn& function);

}  // namespace cistern::shim
