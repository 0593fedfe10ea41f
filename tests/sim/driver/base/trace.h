// SPDX-License-Identifier: Apache-2.0
//
// SIMCUDA_TRACE: one line per traced call, in the order the calls return:
//
//   cuMemAlloc_v2 dptr=0x7f0000000000 bytesize=1024 -> 0 tid=4711 stream=-
//
// Each line is one write to a descriptor opened with O_APPEND: threads, forked children and other
// processes may share the file. No lock, no allocation.
#pragma once

#include "base/gate.h"

namespace simcuda {

// False where the file cannot be opened; nothing is traced then.
bool open_trace(const char* path);

void trace(Call id, const Arg* args, int count, CUresult result);

}  // namespace simcuda
