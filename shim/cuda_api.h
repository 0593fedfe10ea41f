// SPDX-License-Identifier: Apache-2.0
// cuda.h without its macros that rename a function to its newest version: every version is declared
// under its exported name (cuMemAlloc is the 32-bit one, cuMemAlloc_v2 today's). Hooks are defined
// and looked up by exported name.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
