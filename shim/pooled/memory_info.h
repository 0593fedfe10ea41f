// SPDX-License-Identifier: Apache-2.0
// What the program is told of a device's memory: what is kept idle counts as free, and a cap as the
// size of the device. Any thread.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

// As on a device of the cap's size: its total memory, and of that what may yet be taken.
CUresult memory_info(size_t* free, size_t* total);
CUresult total_memory(size_t* bytes, CUdevice ordinal);

}  // namespace cistern::shim
