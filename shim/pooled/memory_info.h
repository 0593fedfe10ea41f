// SPDX-License-Identifier: Apache-2.0
// Answers to queries of a device's memory: idle memory counts as free, and a cap is reported as the
// size of the device. Any thread.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

// cuMemGetInfo (either pointer may be null) and cuDeviceTotalMem, in bytes, as on a device of the
// cap's size.
CUresult memory_info(size_t* free, size_t* total);
CUresult total_memory(size_t* bytes, CUdevice ordinal);

}  // namespace cistern::shim
