// SPDX-License-Identifier: Apache-2.0
// Peer access to memory of the expandable pools. The driver grants it for memory of cuMemAlloc.
// Memory mapped by virtual memory management has a list of devices instead, which is kept here as
// the program enables and disables peer access (order/ties.h). Later mappings get the list then
// (order/cuda_units.h). Any thread.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

// Who reaches memory of `owner` by peer access has changed: gives it to the devices that have it
// now and takes it from all others. An error is the driver's, and means that a device may lack it.
CUresult share_units(CUcontext owner);
// The same for every context.
CUresult share_all_units();

// The device of the current context, and those that reach memory of that context by peer access, as
// bits. 0 without one.
uint64_t devices_of_current(CUdevice* current);

}  // namespace cistern::shim
