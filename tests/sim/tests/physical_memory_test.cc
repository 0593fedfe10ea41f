// SPDX-License-Identifier: Apache-2.0
// Physical memory as files: how many descriptors it takes, and what travels between processes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include "device_code.h"
#include "tests/catch.h"

namespace {

constexpr size_t kUnit = size_t{2} << 20;
constexpr auto kFile = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUmemGenericAllocationHandle create() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = kFile;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_OK(cuMemCreate(&handle, kUnit, &properties, 0));
  return handle;
}

CUdeviceptr reserve(size_t units) {
  CUdeviceptr range = 0;
  EXPECT_OK(cuMemAddressReserve(&range, units * kUnit, 0, 0, 0));
  return range;
}

void map(CUdeviceptr at, CUmemGenericAllocationHandle handle) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  EXPECT_OK(cuMemMap(at, kUnit, 0, handle, 0));
  EXPECT_OK(cuMemSetAccess(at, kUnit, &access, 1));
}

void fill(CUdeviceptr at, unsigned word) {
  EXPECT_OK(cuMemsetD32(at, word, kUnit / 4));
  EXPECT_OK(cuCtxSynchronize());
}

int exported(CUmemGenericAllocationHandle handle) {
  int file = -1;
  EXPECT_OK(cuMemExportToShareableHandle(&file, handle, kFile, 0));
  return file;
}

CUresult import(int file, CUmemGenericAllocationHandle* handle) {
  return cuMemImportFromShareableHandle(
      handle, reinterpret_cast<void*>(static_cast<intptr_t>(file)), kFile);
}

CUmemGenericAllocationHandle imported(int file) {
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_OK(import(file, &handle));
  return handle;
}

long bytes_behind(int file) {
  struct stat status {};
  EXPECT(fstat(file, &status) == 0);
  return status.st_blocks * 512;
}

}  // namespace

TEST_CASE("a physical handle travels as a file descriptor") {
  REQUIRE(in_child({}, [] {
    start();
    const CUdeviceptr range = reserve(2);
    const CUmemGenericAllocationHandle handle = create();
    map(range, handle);
    fill(range, 7);
    const int file = exported(handle);
    map(range + kUnit, imported(file));
    EXPECT(word_at(range + kUnit) == 7);
    // What was imported may be passed on.
    const CUdeviceptr third = reserve(1);
    map(third, imported(exported(imported(file))));
    fill(third, 8);
    EXPECT(word_at(range) == 8);
  }));
}

TEST_CASE("physical memory takes few descriptors, however many handles there are") {
  REQUIRE(in_child({}, [] {
    start();
    constexpr size_t kHandles = 100;
    const rlimit few{32, 32};
    EXPECT(setrlimit(RLIMIT_NOFILE, &few) == 0);
    const CUdeviceptr range = reserve(kHandles), again = reserve(kHandles);
    for (size_t i = 0; i < kHandles; ++i) {
      const CUmemGenericAllocationHandle handle = create();
      map(range + i * kUnit, handle);
      fill(range + i * kUnit, static_cast<unsigned>(i));
      const int file = exported(handle);
      map(again + i * kUnit, imported(file));
      close(file);
    }
    for (size_t i = 0; i < kHandles; ++i) {
      EXPECT(word_at(range + i * kUnit) == i);
      EXPECT(word_at(again + i * kUnit) == i);
    }
  }));
}

TEST_CASE("exported memory stays when its handle goes; other memory goes back to the system") {
  REQUIRE(in_child({}, [] {
    start();
    const CUdeviceptr range = reserve(2);
    const CUmemGenericAllocationHandle sent = create(), kept = create();
    map(range, sent);
    map(range + kUnit, kept);
    fill(range, 7);
    fill(range + kUnit, 8);
    const int file = exported(sent);
    const long before = bytes_behind(file);
    EXPECT_OK(cuMemUnmap(range, 2 * kUnit));
    EXPECT_OK(cuMemRelease(sent));
    EXPECT_OK(cuMemRelease(kept));
    EXPECT(before - bytes_behind(file) == static_cast<long>(kUnit));
    map(range, imported(file));
    EXPECT(word_at(range + kUnit - 4) == 7);
  }));
}

TEST_CASE("only what was exported is imported") {
  REQUIRE(in_child({}, [] {
    start();
    CUmemGenericAllocationHandle handle = 0;
    const int other = memfd_create("other", 0);
    EXPECT(other >= 0 && ftruncate(other, kUnit) == 0);
    EXPECT_CODE(import(other, &handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(import(-1, &handle), CUDA_ERROR_INVALID_VALUE);
    const int file = exported(create());
    EXPECT(lseek(file, 8, SEEK_CUR) == 8);
    EXPECT_CODE(import(file, &handle), CUDA_ERROR_INVALID_VALUE);
  }));
}

TEST_CASE("a program's own file under the number of a closed descriptor stays as it is") {
  REQUIRE(in_child({}, [] {
    start();
    int next = dup(0);
    close(next);
    const CUmemGenericAllocationHandle handle = create();
    const int replaced = memfd_create("program's", 0);  // then it takes what create() took
    EXPECT(ftruncate(replaced, 4 * kUnit) == 0 && dup2(replaced, next) == next);
    const char mark = 'x';
    EXPECT(pwrite(replaced, &mark, 1, kUnit) == 1);
    EXPECT_CODE(cuMemMap(reserve(1), kUnit, 0, handle, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_OK(cuMemRelease(handle));
    char seen = 0;
    EXPECT(pread(next, &seen, 1, kUnit) == 1 && seen == mark);
  }));
}
