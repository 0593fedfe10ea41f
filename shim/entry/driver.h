// SPDX-License-Identifier: Apache-2.0
// The real driver: pointers to the functions behind every hook and to those we call ourselves.
// Found once, at the first CUDA call that comes our way; the library is never unloaded after that.
// Any thread. No lock is held while the loader is asked: threads that arrive together each look
// everything up and the first result stays, so a thread inside dlopen cannot wait for us.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

// What the hook calls: the next definition behind ours, i.e. the driver's, or that of another tool
// that was preloaded after us and forwards in turn.
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

// Whether `real` lies in the CUDA driver. The first such library that the program looks into is the
// one used from then on: programs load it by absolute path, too. A copy under another path is a
// driver of its own, whose functions belong together: false.
bool note_driver(void* real);

// True when `code` (a return address) lies in the driver: its own look-ups are not ours to answer.
bool in_driver(const void* code);

// The hook for an address the driver gave for one of its functions, or nullptr.
void* hook_for_address(const void* real, const char** symbol);

}  // namespace cistern::shim
