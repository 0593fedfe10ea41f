// SPDX-License-Identifier: Apache-2.0
// The C faces of all hooks: the functions that Cistern exports in place of the driver's. They are
// declared from one table (hooks.def) and defined in hooks/*.cc.
#pragma once

#include "shim/cuda_api.h"

#define CISTERN_HOOK(symbol, parameters, arguments) \
  extern "C" [[gnu::visibility("default")]] CUresult CUDAAPI symbol parameters;
#include "shim/hooks.def"
#undef CISTERN_HOOK
