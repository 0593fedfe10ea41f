// SPDX-License-Identifier: Apache-2.0
// The driver functions that Cistern knows by name: those it hooks (hooks.def), with their hooks,
// and those that pass (pass-list.txt, except those it treats as unknown). Any other function of a
// driver is unknown. Constant, so any thread may ask at any time, also before main.
//
// The hooks are Cistern's C faces: it exports them in place of the driver's functions. They are
// declared here from one table and defined in hooks/*.cc.
#pragma once

#include <cstddef>

#include "shim/cuda_api.h"

#define CISTERN_HOOK(symbol, parameters, arguments) \
  extern "C" [[gnu::visibility("default")]] CUresult CUDAAPI symbol parameters;
#include "shim/hooks.def"
#undef CISTERN_HOOK

namespace cistern::shim {

struct Hook {
  const char* symbol;
  void* function;
};

// In the order of hooks.def.
struct HookTable {
  const Hook* entries;
  size_t count;
};
HookTable hooks();

// The entry with exactly this name, or nullptr.
const Hook* find_hook(const char* symbol);

// Whether the name is on the pass list, i.e. the function may be called without a hook.
bool passes(const char* name);
// Whether the name passes or is hooked.
bool is_known(const char* name);

// How many names may be called without a hook.
size_t passing_names();

}  // namespace cistern::shim
