// SPDX-License-Identifier: Apache-2.0
// The driver linked directly, bound lazily and at start.
// A program linked with libcuda. Each lambda holds an ordinary call through the PLT, so that lazy
// binding (driver_api_lazy) and binding at start (driver_api_now) are both what they say.

#include "../driver_session.h"

int main() {
  const DriverCalls calls = {
      [](unsigned flags) { return cuInit(flags); },
      [](CUcontext* context, CUdevice device) { return cuDevicePrimaryCtxRetain(context, device); },
      [](CUcontext context) { return cuCtxSetCurrent(context); },
      [](CUdeviceptr* block, size_t bytes) { return cuMemAlloc(block, bytes); },
      [](CUdeviceptr block) { return cuMemFree(block); },
      [](size_t* free_bytes, size_t* total) { return cuMemGetInfo(free_bytes, total); },
      [](CUdeviceptr* base, size_t* size, CUdeviceptr inside) {
        return cuMemGetAddressRange(base, size, inside);
      },
      [](CUdeviceptr to, unsigned char value, size_t bytes) {
        return cuMemsetD8(to, value, bytes);
      },
      [](CUdeviceptr to, const void* from, size_t bytes) { return cuMemcpyHtoD(to, from, bytes); },
      [](void* to, CUdeviceptr from, size_t bytes) { return cuMemcpyDtoH(to, from, bytes); },
      []() { return cuCtxSynchronize(); },
  };
  return run_session(calls);
}
