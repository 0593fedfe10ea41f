// SPDX-License-Identifier: Apache-2.0
// The CUDA driver: the functions that Cistern knows by name, the real ones behind them, and the
// routes by which a program reaches them. Any thread, also before main.
#pragma once

#include <cstddef>

#include "shim/cuda_api.h"

// The hooks are Cistern's C faces: it exports them in place of the driver's functions. They are
// declared here from one table and defined in hooks/*.cc.
#define CISTERN_HOOK(symbol, parameters, arguments) \
  extern "C" [[gnu::visibility("default")]] CUresult CUDAAPI symbol parameters;
#include "shim/hooks.def"
#undef CISTERN_HOOK

namespace cistern::shim {

// --- Names. The driver functions that Cistern knows: those it hooks (hooks.def), with their hooks,
// and those that pass (pass-list.txt, except those it treats as unknown). Any other function of a
// driver is unknown (unknown.h). These are constants.

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

// --- The real driver: pointers to the functions behind every hook, and to those that Cistern calls
// for itself. They are looked up once, at the first call of a hook; the library is never unloaded
// after that. No lock of Cistern's is held during the look-up, because a thread inside dlopen holds
// the loader's lock. If several threads come at once, each looks up everything, and all use the
// first result.

// For a hooked function, the member is what its hook calls: the driver's function, or that of
// another tool that was preloaded after Cistern and forwards the call in turn. For all others
// (driver_calls.def) it is the driver's function.
struct Driver {
#define CISTERN_HOOK(symbol, parameters, arguments) CUresult(CUDAAPI* symbol) parameters;
#include "shim/hooks.def"
#undef CISTERN_HOOK
#define CISTERN_CALL(symbol, parameters, required) CUresult(CUDAAPI* symbol) parameters;
#include "shim/entry/driver_calls.def"
#undef CISTERN_CALL
  bool complete;  // every required function is there
};

// A member is null if the driver lacks the function, or if there is no driver.
const Driver& driver();

// Whether the function `real` lies in the CUDA driver that Cistern uses. Until a driver is chosen,
// the library of `real` becomes it if its name is libcuda.so: a program may have loaded it by
// absolute path. False for a second copy under another path: that is another driver, and functions
// of the two must not be mixed.
bool note_driver(void* real);

// Whether `code` (a return address) lies in the driver: Cistern does not change the driver's own
// look-ups.
bool in_driver(const void* code);

// The hook of the driver's function at this address, and in *symbol its name; nullptr if no hook
// belongs to the address.
void* hook_for_address(const void* real, const char** symbol);

// Whether an address is a function of the driver that Cistern neither hooks nor lets pass. A
// function may have several names; it is known if Cistern knows one of them.
bool is_unknown(const void* real);
// How many of the driver's functions Cistern does not know by name; not 0 if the driver is newer
// than Cistern.
size_t unknown_functions();
// Whether the driver has a function of this name.
bool driver_defines(const char* name);

// --- routes.cc: the routes by which a program reaches the driver, other than calling an exported
// symbol: dlsym, dlvsym and cuGetProcAddress. Each calls the real function first, then replaces the
// returned function by that function's own hook.

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
