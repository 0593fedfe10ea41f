// SPDX-License-Identifier: Apache-2.0
//
// Host memory the driver hands out or registers: pinned, registered, managed. Real pages from
// mmap; page-granular, as the driver's are. Any thread.
#pragma once

#include "memory/allocation.h"

namespace simcuda {

CUresult allocate_host(Context& context, MemoryKind kind, size_t bytes, unsigned flags,
                       CUdeviceptr* address);

// Frees the host allocation of this kind that starts here.
CUresult free_host(CUdeviceptr base, MemoryKind kind);

CUresult register_host(Context& context, void* address, size_t bytes, unsigned flags);
CUresult unregister_host(void* address);

// Frees everything the context owns outside the device.
void free_host_of(const Context& context);

}  // namespace simcuda
