// SPDX-License-Identifier: Apache-2.0
//
// Legacy IPC: a handle names the exporting process, the file behind its device's memory and the
// place in it; the importer maps the same pages. Needs the exporter alive at the time of opening,
// and both under one user. Any thread.
#pragma once

#include <sys/types.h>

#include "base/cuda.h"

namespace simcuda {

class Context;

CUresult get_ipc_handle(CUdeviceptr address, CUipcMemHandle* handle);
// The context may from now on reach the device the memory is on.
CUresult open_ipc_handle(Context& context, const CUipcMemHandle& handle, CUdeviceptr* address);
CUresult close_ipc_handle(CUdeviceptr address);

// A file that another process of the same user has open; -1 if there is none, or not to be had.
int open_file_of(pid_t process, int file);

// A file descriptor of the memory behind whole pages of one allocation; the caller closes it.
// Stands for a dma_buf: only that there is one, and whose, is simulated.
CUresult get_range_file(CUdeviceptr address, size_t bytes, int* file);

}  // namespace simcuda
