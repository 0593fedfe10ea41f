// SPDX-License-Identifier: Apache-2.0
// Codes without a context, on a bad stream, for the wrong kind of memory, of exports.
// Frees, queries and exports that the driver refuses: without a context, on a bad stream, of the
// inside, of what is freed already, of another kind of memory.

#include <initializer_list>
#include <thread>

#include "../driver_codes.h"

namespace {

void without_context(CUdeviceptr small, CUdeviceptr large) {
  CUdeviceptr address;
  size_t bytes, total;
  CUipcMemHandle handle;
  SAY(cuMemAlloc(&address, 100));
  SAY(cuMemGetInfo(&bytes, &total));
  SAY(cuCtxSynchronize());
  for (const CUdeviceptr block : {small, large}) {
    SAY(cuMemGetAddressRange(&address, &bytes, block));
    SAY(cuMemFree(block));
    SAY(cuMemFreeAsync(block, nullptr));
  }
  SAY(cuIpcGetMemHandle(&handle, large));
  SAY(cuMemFree(0x1000));
  SAY(cuMemFree(0));
}

void no_context() {
  without_context(0x1000, 0x2000);
  CUcontext context = use_device(0), popped;
  CUdeviceptr small, large;
  SAY(cuMemAlloc(&small, 100));
  SAY(cuMemAlloc(&large, 3 * kMiB));
  std::thread(without_context, small, large).join();
  SAY(cuCtxPopCurrent(&popped));
  without_context(small, large);
  SAY(cuCtxSetCurrent(context));
  SAY(cuMemFree(small));
  SAY(cuMemFree(large));
}

void free_async(size_t bytes) {
  CUdeviceptr block;
  CUstream stream;
  SAY(cuStreamCreate(&stream, 0));
  SAY(cuMemAlloc(&block, bytes));
  SAY(cuMemFreeAsync(block, reinterpret_cast<CUstream>(0xdead)));
  SAY(cuMemFreeAsync(block + 4, stream));
  SAY(cuMemFreeAsync(block, stream));
  SAY(cuMemFree(block));
  SAY(cuCtxSynchronize());
  SAY(cuMemFreeAsync(block, stream));
  SAY(cuMemAlloc(&block, bytes));
  SAY(cuStreamDestroy(stream));
  SAY(cuMemFreeAsync(block, stream));
  SAY(cuMemFree(block));
}

void wrong_kind() {
  CUdeviceptr block;
  size_t pitch;
  void* host;
  SAY(cuMemAlloc(&block, 100));
  SAY(cuMemFreeHost(reinterpret_cast<void*>(block)));
  SAY(cuMemFree(block));
  SAY(cuMemAllocPitch(&block, &pitch, 100, 10, 4));
  SAY(cuMemFree(block));
  SAY(cuMemFree(block));
  SAY(cuMemAllocHost(&host, 100));
  SAY(cuMemFree(reinterpret_cast<CUdeviceptr>(host)));
  SAY(cuMemFreeHost(host));
}

void exports() {
  CUipcMemHandle handle;
  CUdeviceptr block;
  SAY(cuMemAlloc(&block, 3 * kMiB));
  SAY(cuIpcGetMemHandle(&handle, block));
  SAY(cuMemFree(block));
  SAY(cuIpcGetMemHandle(&handle, block));
  for (const size_t bytes : {2 * kMiB, size_t{200}}) {
    SAY(cuMemAlloc(&block, bytes));
    SAY(cuMemFree(block));
    SAY(cuIpcGetMemHandle(&handle, block));
    SAY(cuIpcGetMemHandle(nullptr, block));
  }
  SAY(cuIpcGetMemHandle(&handle, 0));
}

}  // namespace

int main() {
  no_context();
  free_async(100);
  free_async(3 * kMiB);
  wrong_kind();
  exports();
  return 0;
}
