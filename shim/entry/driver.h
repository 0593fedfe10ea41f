// SPDX-License-Identifier: Apache-2.0
// The real driver: pointers to the functions behind every hook, and to those that Cistern calls for
// itself. They are looked up once, at the first call of a hook; the library is never unloaded after
// that. Any thread. No lock is held during the look-up, since a thread inside dlopen holds the
// loader's own lock. Threads that arrive together each look up everything, and all use the first
// result.
#pragma once

#include <cstddef>

#include "shim/cuda_api.h"

namespace cistern::shim {

// For a hooked function, what its hook calls: the driver's function, or that of another tool that
// was preloaded after Cistern and forwards in turn. For the others (driver_calls.def), the
// driver's.
struct Driver {
#define CISTERN_HOOK(symbol, parameters, arguments) CUresult(CUDAAPI* symbol) parameters;
#include "shim/hooks.def"
#undef CISTERN_HOOK
#define CISTERN_CALL(symbol, parameters, required) CUresult(CUDAAPI* symbol) parameters;
#include "shim/entry/driver_calls.def"
#undef CISTERN_CALL
  bool complete;  // every required function is there
};

// Never null; members are null where the driver lacks the function or there is no driver.
const Driver& driver();

// Whether the function `real` lies in the CUDA driver that Cistern uses. Until that is settled, the
// library of `real` becomes the driver if it is named libcuda.so: a program may have loaded it by
// absolute path. False for a copy under another path: it is a driver of its own, and functions of
// the two must not be mixed.
bool note_driver(void* real);

// True when `code` (a return address) lies in the driver: its own look-ups are not ours to answer.
bool in_driver(const void* code);

// The hook for an address that the driver gave for one of its functions, and its name; or nullptr.
void* hook_for_address(const void* real, const char** symbol);

// Whether an address lies in the driver and is none of its functions that Cistern hooks or lets
// pass. A function has one address for all its names, and is known if one of them is.
bool is_unknown(const void* real);
// How many functions the driver has whose names Cistern does not know: it is newer than Cistern.
size_t unknown_functions();
// Whether the driver has a function of this name.
bool driver_defines(const char* name);

}  // namespace cistern::shim
