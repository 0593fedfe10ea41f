// SPDX-License-Identifier: Apache-2.0
//
// Finds the symbol cuGetProcAddress means: a name without suffixes, the CUDA version the caller
// was built for, and the default stream it wants. Pure function of the call table.
#pragma once

#include "table/calls.h"

namespace simcuda {

struct ProcAddress {
  const CallInfo* call;  // null where nothing fits
  bool name_known;       // the name exists, but not for so old a version
};

ProcAddress find_proc_address(const char* name, int version, bool want_per_thread);

}  // namespace simcuda
