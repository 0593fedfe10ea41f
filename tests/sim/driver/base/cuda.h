// SPDX-License-Identifier: Apache-2.0
//
// CUDA's driver header as the driver itself sees it: every version of every function under its
// own exported name, none hidden behind a macro. Protected: the table of calls must hold this
// library's own functions, also where a preloaded object defines the same names.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(protected)
#include <cuda.h>
#pragma GCC visibility pop
