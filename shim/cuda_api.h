// SPDX-License-Identifier: Apache-2.0
// cuda.h with every version of every function under its exported name (cuMemAlloc is the 32-bit
// one, cuMemAlloc_v2 today's), because the names are what is caught.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
