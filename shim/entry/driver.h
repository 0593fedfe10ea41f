// SPDX-License-Identifier: Apache-2.0
// The real driver: pointers to the functions behind every hook, and to those that Cistern calls for
// itself. They are looked up once, at the first call of a hook; the library is never unloaded after
// that. Any thread. No lock of Cistern's is held during the look-up, because a thread inside dlopen
// holds the loader's lock. If several threads come at once, each looks up everything, and all use
// the first result.
#pragma once

#include <cstddef>

#include "shim/cuda_api.h"

namespace cistern::shim {

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

}  // namespace cistern::shim
