// SPDX-License-Identifier: Apache-2.0
// The functions of NVTX that Cistern answers, for the tables of an instance of NVTX (injection.cc).
// If another tool also wants a function, the tool's is called after ours and its result is
// returned. Then the program has the tool's handles and numbers, and names are found by them here.
// Any thread.
#pragma once

#include <cstdint>

// NVTX as a tool sees it: types only, nothing of its implementation.
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#undef NVTX_NO_IMPL

namespace cistern::shim {

// Which function: its place in NVTX's table of that module.
struct Callback {
  NvtxCallbackModule module;
  uint32_t id;
  NvtxFunctionPointer ours;
};

inline constexpr unsigned kCallbacks = 17;
void list_callbacks(Callback (&out)[kCallbacks]);

// The tool's functions, in the order of that list, null where it has none; with no tool, `next` is
// null. Before NVTX calls any of ours; constant from then on.
void put_before(const NvtxFunctionPointer* next);

void reset_callbacks_after_fork();

}  // namespace cistern::shim
