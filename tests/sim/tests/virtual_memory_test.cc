// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "catch.h"
#include "support.h"

namespace {

constexpr size_t kUnit = size_t{2} << 20;

CUmemAllocationProp properties() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = 0;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

CUmemGenericAllocationHandle create(size_t bytes) {
  const CUmemAllocationProp prop = properties();
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_OK(cuMemCreate(&handle, bytes, &prop, 0));
  return handle;
}

void map(CUdeviceptr at, CUmemGenericAllocationHandle handle) {
  CUmemAccessDesc access{};
  access.location = properties().location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  EXPECT_OK(cuMemMap(at, kUnit, 0, handle, 0));
  EXPECT_OK(cuMemSetAccess(at, kUnit, &access, 1));
}

size_t free_bytes() {
  size_t free = 0;
  EXPECT_OK(cuMemGetInfo(&free, nullptr));
  return free;
}

uint32_t word_at(CUdeviceptr address) {
  uint32_t word = 0;
  EXPECT_OK(cuMemcpyDtoH(&word, address, sizeof word));
  return word;
}

}  // namespace

TEST_CASE("a physical handle mapped twice is one memory, charged until the last is gone") {
  REQUIRE(in_child({}, [] {
    start();
    const size_t before = free_bytes();
    CUdeviceptr range = 0;
    EXPECT_OK(cuMemAddressReserve(&range, 4 * kUnit, 0, 0, 0));
    const CUmemGenericAllocationHandle handle = create(kUnit);
    map(range, handle);
    map(range + 2 * kUnit, handle);
    EXPECT_OK(cuMemsetD32(range, 42, 16));
    EXPECT(word_at(range + 2 * kUnit) == 42);
    EXPECT_CODE(cuMemMap(range, kUnit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_OK(cuMemUnmap(range, kUnit));
    EXPECT(before - free_bytes() == kUnit);
    EXPECT_CODE(cuMemAddressFree(range, 4 * kUnit), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemUnmap(range + 2 * kUnit, kUnit));
    EXPECT(free_bytes() == before);
    EXPECT_OK(cuMemAddressFree(range, 4 * kUnit));
  }));
}

TEST_CASE("fills and copies run over mappings side by side, not over a gap") {
  REQUIRE(in_child({}, [] {
    start();
    CUdeviceptr range = 0;
    EXPECT_OK(cuMemAddressReserve(&range, 3 * kUnit, 0, 0, 0));
    map(range, create(kUnit));
    map(range + kUnit, create(kUnit));
    EXPECT_OK(cuMemsetD8(range + kUnit - 8, 1, 16));
    EXPECT_CODE(cuMemsetD8(range + 2 * kUnit - 8, 1, 16), CUDA_ERROR_INVALID_VALUE);
  }));
}

TEST_CASE("a physical handle travels as a file descriptor") {
  REQUIRE(in_child({}, [] {
    start();
    CUdeviceptr range = 0;
    EXPECT_OK(cuMemAddressReserve(&range, 2 * kUnit, 0, 0, 0));
    const CUmemGenericAllocationHandle handle = create(kUnit);
    map(range, handle);
    EXPECT_OK(cuMemsetD32(range, 7, 1));
    int file = -1;
    EXPECT_OK(
        cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUmemGenericAllocationHandle imported = 0;
    EXPECT_OK(cuMemImportFromShareableHandle(&imported,
                                             reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    map(range + kUnit, imported);
    EXPECT(word_at(range + kUnit) == 7);
  }));
}

TEST_CASE("memory freed on a stream comes back when the stream gets there") {
  REQUIRE(in_child({{"SIMCUDA_MEMORY_MB", "16"}, {"SIMCUDA_LATENCY", "cuMemsetD8Async=20ms"}}, [] {
    start();
    CUstream stream = nullptr;
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const size_t before = free_bytes();
    CUdeviceptr block = 0;
    EXPECT_OK(cuMemAllocAsync(&block, 6 * kUnit, stream));
    EXPECT_OK(cuMemsetD8Async(block, 1, 100, stream));
    EXPECT_OK(cuMemFreeAsync(block, stream));
    EXPECT(before - free_bytes() == 6 * kUnit);
    // The allocation waits for what would make room.
    EXPECT_OK(cuMemAllocAsync(&block, 6 * kUnit, stream));
    EXPECT_OK(cuMemFree(block));
    EXPECT(free_bytes() == before);
    CUmemoryPool pool = nullptr;
    cuuint64_t used = 1;
    EXPECT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
    EXPECT_OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    EXPECT(used == 0);
  }));
}
