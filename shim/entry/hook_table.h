// SPDX-License-Identifier: Apache-2.0
// The table of hooks: from a symbol's name to the hook. Constant, so any thread may read it at any
// time, also before main.
#pragma once

#include <cstddef>

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

}  // namespace cistern::shim
