// SPDX-License-Identifier: Apache-2.0
// Device memory as the program asks for it: what cuMemAlloc, cuMemFree and the queries about them
// do under Cistern. Results are the driver's own, or what it would have said. Any thread.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

CUresult allocate(CUdeviceptr* out, size_t bytes);
CUresult free(CUdeviceptr address);
// Returns to the driver what the pools of the current device keep; false if that is nothing.
bool return_idle_memory();
// Whether the pools know this address.
bool owned(CUdeviceptr address);
CUresult memory_info(size_t* free, size_t* total);
CUresult address_range(CUdeviceptr* base, size_t* size, CUdeviceptr address);
CUresult export_handle(CUipcMemHandle* handle, CUdeviceptr address);

}  // namespace cistern::shim
