// SPDX-License-Identifier: Apache-2.0
//
// cuMemAlloc and cuMemFree over a context's device. Any thread.
#pragma once

#include "base/cuda.h"

namespace simcuda {

class Context;

CUresult allocate_device(Context& context, size_t bytes, CUdeviceptr* address);

// Waits for the owner's work first, as the real driver does: programs have come to rely on it.
CUresult free_device(CUdeviceptr address);

}  // namespace simcuda
