// SPDX-License-Identifier: Apache-2.0
// The C faces of all hooks, i.e. the functions that Cistern exports in place of the driver's:
// declared from the one table (hooks.def), defined in hooks/*.cc.
#pragma once

#include "shim/cuda_api.h"

#define CISTERN_HOOK(symbol, parameters, arguments) \
  extern "C" [[gnu::visibility("default")]] CUresult CUDAAPI symbol parameters;
#include "shim/hooks.def"
#undef CISTERN_HOOK
