// SPDX-License-Identifier: Apache-2.0
// Caps of two devices charge the device of the memory, wherever it is used, freed or outlived.
// Memory lies on another device than the current one, is freed from another context, device or
// thread, goes with its context or outlives it. Two small devices and two caps on larger devices
// must tell the same after each step.

#include <thread>

#include "../kinds.h"

namespace {

CUcontext g_primary[2];

void info() {
  CUcontext before = nullptr;
  cuCtxGetCurrent(&before);
  for (CUdevice device = 0; device < 2; ++device) {
    size_t free_bytes = 0, total = 0;
    cuCtxSetCurrent(g_primary[device]);
    SAY(cuMemGetInfo(&free_bytes, &total));
    std::printf("device %d: free %zu of %zu MiB\n", device, free_bytes / kMiB, total / kMiB);
  }
  cuCtxSetCurrent(before);
}

// Allocated with one device current, freed by another thread with the other current.
void freed_elsewhere(const Kind& kind) {
  Piece piece;
  std::printf("%s\n", kind.name);
  cuCtxSetCurrent(g_primary[0]);
  SAY(allocate(kind, &piece, 20 * kMiB, 0));
  SAY(cuCtxSynchronize());
  info();
  std::thread([&] {
    cuCtxSetCurrent(g_primary[1]);
    SAY(kind.free(&piece));
    SAY(kind.free(&piece));  // nothing is given back twice
    cuCtxSetCurrent(g_primary[0]);
    SAY(cuCtxSynchronize());
  }).join();
  info();
}

// On device 1 while device 0 is current: more than device 0 has, and more than device 1 has.
void allocated_elsewhere(const Kind& kind) {
  Piece piece;
  std::printf("%s on the other device\n", kind.name);
  cuCtxSetCurrent(g_primary[0]);
  SAY(allocate(kind, &piece, 40 * kMiB, 1));
  info();
  SAY(kind.free(&piece));
  SAY(cuCtxSynchronize());
  info();
  SAY(allocate(kind, &piece, 100 * kMiB, 1));
}

void on_a_stream_of_another_device() {
  CUstream stream = nullptr;
  CUdeviceptr block = 0;
  cuCtxSetCurrent(g_primary[1]);
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  cuCtxSetCurrent(g_primary[0]);
  SAY(cuMemAllocAsync(&block, 40 * kMiB, stream));
  info();
  SAY(cuMemFreeAsync(block, stream));
  SAY(cuStreamSynchronize(stream));
  info();
}

void from_the_default_pool_of_another_device() {
  CUmemoryPool pool = nullptr;
  CUdeviceptr block = 0;
  SAY(cuDeviceGetDefaultMemPool(&pool, 1));
  SAY(cuMemAllocFromPoolAsync(&block, 40 * kMiB, pool, nullptr));
  info();
  SAY(cuMemFree(block));
  info();
}

void from_a_pool_that_is_gone() {
  CUmemoryPool pool = nullptr;
  CUmemPoolProps properties{};
  CUdeviceptr block = 0;
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  SAY(cuMemPoolCreate(&pool, &properties));
  SAY(cuMemAllocFromPoolAsync(&block, 40 * kMiB, pool, nullptr));
  SAY(cuMemPoolDestroy(pool));
  info();
  properties.location.id = 0;  // the handle may well be the same
  SAY(cuMemPoolCreate(&pool, &properties));
  SAY(cuMemFree(block));
  SAY(cuMemAllocFromPoolAsync(&block, 10 * kMiB, pool, nullptr));
  info();
  SAY(cuMemFree(block));
  SAY(cuMemPoolDestroy(pool));
}

// What is freed in stream order may be had again at once: the driver orders it.
void again_in_stream_order() {
  for (int round = 0; round < 20; ++round) {
    CUdeviceptr block = 0;
    const CUresult allocated = cuMemAllocAsync(&block, 30 * kMiB, nullptr);
    const CUresult filled = cuMemsetD8Async(block, 1, kMiB, nullptr);
    const CUresult freed = cuMemFreeAsync(block, nullptr);
    if (allocated != CUDA_SUCCESS || filled != CUDA_SUCCESS || freed != CUDA_SUCCESS) {
      std::printf("round %d: %d, %d, %d\n", round, allocated, filled, freed);
    }
  }
  SAY(cuCtxSynchronize());
  info();
}

void gone_with_the_context() {
  CUcontext own = nullptr;
  Piece piece;
  SAY(cuCtxCreate(&own, nullptr, 0, 1));
  for (const Kind& kind : kinds::kAll) {
    if (kind.allocate == kinds::stream_ordered || kind.allocate == kinds::from_own_pool) continue;
    SAY(allocate(kind, &piece, 4 * kMiB, 1));
  }
  info();
  SAY(cuCtxDestroy(own));
  cuCtxSetCurrent(g_primary[0]);
  info();
  cuCtxSetCurrent(g_primary[1]);
  SAY(allocate(kinds::kAll[1], &piece, 40 * kMiB, 1));
  SAY(cuDevicePrimaryCtxReset(1));
  g_primary[1] = use_device(1);
  info();
}

// Stream-ordered memory is its device's: it outlives a reset, and is freed in the next context.
void outlives_its_context() {
  CUdeviceptr kept = 0, plain = 0;
  cuCtxSetCurrent(g_primary[1]);
  SAY(cuMemAllocAsync(&kept, 40 * kMiB, nullptr));
  SAY(cuMemAlloc(&plain, 20 * kMiB));
  SAY(cuDevicePrimaryCtxReset(1));
  g_primary[1] = use_device(1);
  info();
  SAY(cuMemAlloc(&plain, 60 * kMiB));
  SAY(cuMemFreeAsync(kept, nullptr));
  SAY(cuStreamSynchronize(nullptr));
  SAY(cuMemAlloc(&plain, 60 * kMiB));
  SAY(cuMemFree(plain));
  info();
}

// Physical memory by what holds it: handles, however many, and mappings.
void held_in_turn() {
  const CUmemAllocationProp properties = kinds::on_device(0);
  CUmemGenericAllocationHandle handle = 0, again = 0, third = 0;
  CUdeviceptr at = 0;
  SAY(cuMemCreate(&handle, 10 * kMiB, &properties, 0));
  SAY(cuMemAddressReserve(&at, 40 * kMiB, 0, 0, 0));
  SAY(cuMemMap(at, 10 * kMiB, 0, handle, 0));
  SAY(cuMemMap(at + 10 * kMiB, 10 * kMiB, 0, handle, 0));
  SAY(cuMemMap(at, 10 * kMiB, 0, handle, 0));
  SAY(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at + kMiB)));
  SAY(cuMemRelease(handle));
  SAY(cuMemRelease(again));
  info();
  SAY(cuMemRetainAllocationHandle(&third, reinterpret_cast<void*>(at + 12 * kMiB)));
  SAY(cuMemUnmap(at, 5 * kMiB));
  SAY(cuMemUnmap(at, 20 * kMiB));
  info();
  SAY(cuMemMap(at, 10 * kMiB, 0, third, 0));
  SAY(cuMemRelease(third));
  info();
  SAY(cuMemUnmap(at, 10 * kMiB));
  info();
  SAY(cuMemAddressFree(at, 40 * kMiB));
}

// The exporter's memory: an import is not charged a second time, and holds it no less.
void imported() {
  CUmemAllocationProp properties = kinds::on_device(0);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0, import = 0;
  int file = -1;
  CUdeviceptr at = 0;
  SAY(cuMemCreate(&handle, 10 * kMiB, &properties, 0));
  SAY(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  SAY(cuMemImportFromShareableHandle(&import, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  SAY(cuMemAddressReserve(&at, 20 * kMiB, 0, 0, 0));
  SAY(cuMemMap(at, 10 * kMiB, 0, import, 0));
  SAY(cuMemMap(at + 10 * kMiB, 10 * kMiB, 0, handle, 0));
  info();
  SAY(cuMemRelease(import));
  SAY(cuMemRelease(handle));
  SAY(cuMemUnmap(at, 20 * kMiB));
  info();
}

}  // namespace

int main() {
  g_primary[0] = use_device(0);
  g_primary[1] = use_device(1);
  info();
  for (const Kind& kind : kinds::kAll) {
    if (kind.free != kinds::free_mapped) freed_elsewhere(kind);
  }
  for (const Kind& kind : kinds::kAll) {
    const bool placed = kind.allocate == kinds::from_own_pool || kind.allocate == kinds::physical ||
                        kind.allocate == kinds::mapped;
    if (placed) allocated_elsewhere(kind);
  }
  on_a_stream_of_another_device();
  from_the_default_pool_of_another_device();
  from_a_pool_that_is_gone();
  again_in_stream_order();
  held_in_turn();
  imported();
  gone_with_the_context();
  outlives_its_context();
  return 0;
}
