// SPDX-License-Identifier: Apache-2.0
// Device memory as the program asks for it: what cuMemAlloc, cuMemFree and the queries about them
// do under Cistern. Results are the driver's own, or what it would have said. Any thread.
#pragma once

#include "allocator/chunk/chunk.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

CUresult allocate(CUdeviceptr* out, size_t bytes);
CUresult free(CUdeviceptr address);
// The same for cuMemFreeAsync, which no capture but its stream's own forbids.
CUresult free_ordered(alloc::Chunk* chunk, CUdeviceptr address);
// Returns to the driver what is kept on a device (the current one); false if nothing went, by
// whomever. Only after the driver itself said that memory is out.
bool return_idle_memory(CUdevice device);
bool return_idle_memory();
// What the driver would say of an allocation, other than a stream-ordered one, for which there is
// no room: a context whose work died, or a capture that forbids the call, comes first.
CUresult no_room();
// Whether the pools know this address, and the chunk that contains it.
bool ours(CUdeviceptr address, alloc::Chunk** chunk);
CUresult address_range(CUdeviceptr* base, size_t* size, CUdeviceptr address);
CUresult export_handle(CUipcMemHandle* handle, CUdeviceptr address);

// As long as memory is out and something that was kept is returned: makes the call once more.
// Other threads fill and empty their pools meanwhile.
template <typename Result, typename Call, typename Return>
Result again_with_idle_memory(Result result, Call call, Return return_idle) {
  constexpr int kAttempts = 16;
  for (int i = 0; i < kAttempts && result == CUDA_ERROR_OUT_OF_MEMORY && return_idle(); ++i) {
    result = call();
  }
  return result;
}
template <typename Result, typename Call>
Result again_with_idle_memory(Result result, Call call) {
  return again_with_idle_memory(result, call, [] { return return_idle_memory(); });
}

}  // namespace cistern::shim
