// SPDX-License-Identifier: Apache-2.0
// NVTX as a tool sees it: types only, nothing of its implementation.
#pragma once

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#undef NVTX_NO_IMPL
