// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "device_code.h"
#include "tests/catch.h"
#include "tests/sim/include/simcuda/watch.h"

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

CUmemAccessDesc access_of(int device, CUmemAccess_flags flags) {
  CUmemAccessDesc access{};
  access.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  access.flags = flags;
  return access;
}

void set_access(CUdeviceptr at, int device, CUmemAccess_flags flags) {
  const CUmemAccessDesc access = access_of(device, flags);
  EXPECT_OK(cuMemSetAccess(at, kUnit, &access, 1));
}

CUmemGenericAllocationHandle create(size_t bytes) {
  const CUmemAllocationProp prop = properties();
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_OK(cuMemCreate(&handle, bytes, &prop, 0));
  return handle;
}

void map(CUdeviceptr at, CUmemGenericAllocationHandle handle) {
  EXPECT_OK(cuMemMap(at, kUnit, 0, handle, 0));
  set_access(at, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

CUdeviceptr reserve(size_t units) {
  CUdeviceptr range = 0;
  EXPECT_OK(cuMemAddressReserve(&range, units * kUnit, 0, 0, 0));
  return range;
}

SimcudaVirtualMemory counts() {
  SimcudaVirtualMemory now{};
  simcuda_virtual_memory(&now);
  return now;
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

TEST_CASE("what there is of virtual memory is counted") {
  REQUIRE(in_child({}, [] {
    start();
    const CUdeviceptr range = reserve(4);
    const CUmemGenericAllocationHandle one = create(kUnit), other = create(kUnit);
    map(range, one);
    map(range + kUnit, one);
    SimcudaVirtualMemory now = counts();
    EXPECT(now.handles == 2 && now.mappings == 2 && now.mapped_bytes == 2 * kUnit);
    EXPECT(now.reservations == 1 && now.reserved_bytes == 4 * kUnit);
    EXPECT_OK(cuMemUnmap(range, 2 * kUnit));
    EXPECT_OK(cuMemRelease(one));
    EXPECT_OK(cuMemRelease(other));
    EXPECT_OK(cuMemAddressFree(range, 4 * kUnit));
    now = counts();
    EXPECT(now.handles + now.mappings + now.mapped_bytes + now.reservations == 0);
  }));
}

TEST_CASE("virtual memory outlives the contexts of its device") {
  REQUIRE(in_child({}, [] {
    CUcontext context = start(), other = nullptr;
    const CUdeviceptr range = reserve(1);
    map(range, create(kUnit));
    EXPECT_OK(cuMemsetD32(range, 9, 1));
    EXPECT_OK(cuCtxCreate(&other, nullptr, 0, 0));
    EXPECT_OK(cuCtxDestroy(other));
    EXPECT_OK(cuDevicePrimaryCtxReset(0));
    EXPECT(counts().mappings == 1);
    EXPECT_OK(cuDevicePrimaryCtxRetain(&context, 0));
    EXPECT_OK(cuCtxSetCurrent(context));
    EXPECT(word_at(range) == 9);
  }));
}

TEST_CASE("what was reserved, created and mapped and never given back is reported at exit") {
  const TemporaryFile report;
  REQUIRE(in_child({{"SIMCUDA_LEAKS", "report"}, {"SIMCUDA_RACES_FILE", report.path()}}, [] {
    start();
    const CUdeviceptr range = reserve(2), given_back = reserve(1);
    map(range, create(kUnit));
    EXPECT_OK(cuMemAddressFree(given_back, kUnit));
    std::exit(0);  // with destructors, unlike _exit
  }));
  // The memory, its mapping and the addresses.
  CHECK(report.lines().size() == 3);
}

TEST_CASE("each device has its own access to mapped memory") {
  REQUIRE(in_child({{"SIMCUDA_DEVICES", "2"}}, [] {
    start();
    const CUdeviceptr range = reserve(1);
    map(range, create(kUnit));
    const CUmemLocation first{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    const CUmemLocation second{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    unsigned long long flags = 7;
    EXPECT_OK(cuMemGetAccess(&flags, &second, range));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    set_access(range, 1, CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_OK(cuMemGetAccess(&flags, &second, range));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_OK(cuMemGetAccess(&flags, &first, range));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    const CUmemAccessDesc nowhere = access_of(2, CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_CODE(cuMemSetAccess(range, kUnit, &nowhere, 1), CUDA_ERROR_INVALID_DEVICE);
  }));
}

TEST_CASE("memory that no device has access to is neither filled nor copied") {
  REQUIRE(in_child({}, [] {
    start();
    const CUdeviceptr range = reserve(1);
    EXPECT_OK(cuMemMap(range, kUnit, 0, create(kUnit), 0));
    EXPECT_CODE(cuMemsetD8(range, 1, 16), CUDA_ERROR_INVALID_VALUE);
    set_access(range, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_OK(cuMemsetD8(range, 1, 16));
    EXPECT_OK(cuCtxSynchronize());  // a fill of device memory may still run when its call returns
    set_access(range, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    EXPECT_CODE(cuMemsetD8(range, 1, 16), CUDA_ERROR_INVALID_VALUE);
  }));
}

TEST_CASE("a kernel touches mapped memory only where its device has access") {
  const TemporaryFile report;
  REQUIRE(in_child({{"SIMCUDA_DEVICES", "2"},
                    {"SIMCUDA_RACES", "report"},
                    {"SIMCUDA_RACES_FILE", report.path()}},
                   [] {
                     start(0);
                     const CUdeviceptr range = reserve(1);
                     map(range, create(kUnit));
                     start(1);
                     CUstream stream = new_stream();
                     fill_words(stream, range, 16, 1);
                     EXPECT_OK(cuStreamSynchronize(stream));
                     EXPECT(simcuda_findings(SIMCUDA_INVALID_ACCESS) == 1);
                     set_access(range, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
                     fill_words(stream, range, 16, 1);
                     EXPECT_OK(cuStreamSynchronize(stream));
                     EXPECT(simcuda_findings(SIMCUDA_INVALID_ACCESS) == 1);
                   }));
}

TEST_CASE("unmapping under unfinished work is a race, after it is not") {
  const TemporaryFile report;
  for (const bool waits : {false, true}) {
    REQUIRE(in_child({{"SIMCUDA_RACES", "report"}, {"SIMCUDA_RACES_FILE", report.path()}}, [&] {
      start();
      const CUdeviceptr range = reserve(1);
      map(range, create(kUnit));
      CUstream stream = new_stream();
      EXPECT_OK(cuMemsetD8Async(range, 1, 16, stream));
      if (waits) EXPECT_OK(cuStreamSynchronize(stream));
      // The fill is over, which nobody was told: one that is not would find nothing mapped.
      while (*reinterpret_cast<volatile unsigned char*>(range + 15) != 1) std::this_thread::yield();
      EXPECT_OK(cuMemUnmap(range, kUnit));
      EXPECT(simcuda_findings(SIMCUDA_RACE) == (waits ? 0 : 1));
      EXPECT_OK(cuStreamSynchronize(stream));
    }));
  }
}

TEST_CASE("each call of virtual memory fails at the use that was asked for") {
  REQUIRE(
      in_child({{"SIMCUDA_FAIL",
                 "cuMemAddressReserve:2=2,cuMemCreate:2=2,cuMemMap:2=999,cuMemSetAccess:2=2,"
                 "cuMemUnmap:1=999,cuMemRelease:1=999,cuMemAddressFree:1=999"}},
               [] {
                 start();
                 const CUdeviceptr range = reserve(1);
                 CUdeviceptr again = 0;
                 EXPECT_CODE(cuMemAddressReserve(&again, kUnit, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
                 const CUmemGenericAllocationHandle unit = create(kUnit);
                 CUmemGenericAllocationHandle other = 0;
                 const CUmemAllocationProp prop = properties();
                 EXPECT_CODE(cuMemCreate(&other, kUnit, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
                 map(range, unit);
                 EXPECT_CODE(cuMemMap(range, kUnit, 0, unit, 0), CUDA_ERROR_UNKNOWN);
                 const CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
                 EXPECT_CODE(cuMemSetAccess(range, kUnit, &access, 1), CUDA_ERROR_OUT_OF_MEMORY);
                 EXPECT_CODE(cuMemUnmap(range, kUnit), CUDA_ERROR_UNKNOWN);
                 EXPECT_OK(cuMemUnmap(range, kUnit));
                 EXPECT_CODE(cuMemRelease(unit), CUDA_ERROR_UNKNOWN);
                 EXPECT_OK(cuMemRelease(unit));
                 EXPECT_CODE(cuMemAddressFree(range, kUnit), CUDA_ERROR_UNKNOWN);
                 EXPECT_OK(cuMemAddressFree(range, kUnit));
                 EXPECT(counts().handles + counts().reservations == 0);
               }));
}

TEST_CASE("a device without virtual memory says so, one without file handles makes none") {
  REQUIRE(in_child({{"SIMCUDA_LACKS", "virtual-memory"}}, [] {
    start();
    int can = 1;
    EXPECT_OK(
        cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    EXPECT(can == 0);
    CUdeviceptr range = 0;
    EXPECT_CODE(cuMemAddressReserve(&range, kUnit, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
  }));
  REQUIRE(in_child({{"SIMCUDA_LACKS", "file-handles,rdma"}}, [] {
    start();
    CUmemAllocationProp prop = properties();
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_CODE(cuMemCreate(&handle, kUnit, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    prop.allocFlags.gpuDirectRDMACapable = 1;
    EXPECT_CODE(cuMemCreate(&handle, kUnit, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
    prop.allocFlags.gpuDirectRDMACapable = 0;
    EXPECT_OK(cuMemCreate(&handle, kUnit, &prop, 0));
  }));
}

TEST_CASE("of mapped memory is told what it was made for") {
  REQUIRE(in_child({}, [] {
    start();
    CUmemAllocationProp prop = properties();
    prop.allocFlags.gpuDirectRDMACapable = 1;
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_OK(cuMemCreate(&handle, kUnit, &prop, 0));
    const CUdeviceptr range = reserve(2);
    map(range, handle);
    map(range + kUnit, create(kUnit));
    int rdma = 0;
    unsigned long long types = 0;
    EXPECT_OK(cuPointerGetAttribute(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, range));
    EXPECT_OK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, range));
    EXPECT(rdma == 1 && types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    EXPECT_OK(cuPointerGetAttribute(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
                                    range + kUnit));
    EXPECT(rdma == 0);
  }));
}

TEST_CASE("physical memory of the host is mapped like any, and no device pays for it") {
  REQUIRE(in_child({}, [] {
    start();
    const size_t before = free_bytes();
    for (const auto where : {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA}) {
      CUmemAllocationProp prop = properties();
      prop.location.type = where;
      prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
      CUmemGenericAllocationHandle handle = 0;
      EXPECT_OK(cuMemCreate(&handle, kUnit, &prop, 0));
      EXPECT(free_bytes() == before);
      const CUdeviceptr range = reserve(1);
      map(range, handle);
      EXPECT_OK(cuMemsetD32(range, 7, kUnit / 4));
      EXPECT(word_at(range) == 7);
      EXPECT_OK(cuMemUnmap(range, kUnit));
      EXPECT_OK(cuMemRelease(handle));
      EXPECT_OK(cuMemAddressFree(range, kUnit));
      EXPECT(free_bytes() == before);
    }
  }));
}

TEST_CASE("memory of the host as such is not exported, and the calling thread's node is none") {
  REQUIRE(in_child({}, [] {
    start();
    CUmemAllocationProp prop = properties();
    CUmemGenericAllocationHandle handle = 0;
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
    EXPECT(cuMemCreate(&handle, kUnit, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    EXPECT(cuMemCreate(&handle, kUnit, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
    prop.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 1};
    EXPECT(cuMemCreate(&handle, kUnit, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
  }));
}
