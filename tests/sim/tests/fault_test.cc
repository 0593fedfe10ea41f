// SPDX-License-Identifier: Apache-2.0
//
// What can be made to go wrong: planted failures, memory pressure, lost devices.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "device_code.h"
#include "tests/catch.h"

TEST_CASE("a fault after the work leaves the work done and the out-parameters untouched") {
  REQUIRE(in_child({{"SIMCUDA_FAIL", "cuMemAlloc_v2:2:after=2"}}, [] {
    start();
    CUdeviceptr block = new_block(2 * kMiB);
    const size_t before = free_bytes();
    block = 0x77;
    EXPECT_CODE(cuMemAlloc(&block, 2 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(block == 0x77);
    EXPECT(free_bytes() == before - 2 * kMiB);
    EXPECT_OK(cuMemAlloc(&block, 2 * kMiB));
  }));
}

TEST_CASE("a call that fails by itself is not made to fail after its work") {
  REQUIRE(in_child({{"SIMCUDA_FAIL", "cuMemFree_v2:every:after=999"}}, [] {
    start();
    const CUdeviceptr block = new_block(2 * kMiB);
    const size_t before = free_bytes();
    EXPECT_CODE(cuMemFree(block + 512), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemFree(block), CUDA_ERROR_UNKNOWN);
    EXPECT(free_bytes() == before + 2 * kMiB);
  }));
}

TEST_CASE("faults drawn with one seed are the same faults in every run") {
  const auto drawn = [](const char* rule) {
    const TemporaryFile trace;
    REQUIRE(in_child({{"SIMCUDA_FAIL", rule}, {"SIMCUDA_TRACE", trace.path()}}, [] {
      start();
      for (int i = 0; i < 400; ++i) {
        CUdeviceptr block = 0;
        static_cast<void>(cuMemAlloc(&block, 1));
      }
    }));
    std::string codes;
    for (const std::string& line : trace.lines()) {
      if (line.starts_with("cuMemAlloc_v2 ")) codes += line.find("-> 2 ") != line.npos ? 'x' : '.';
    }
    return codes;
  };
  const std::string codes = drawn("cuMemAlloc:p0.25@1=2");
  const auto failed = std::count(codes.begin(), codes.end(), 'x');
  CHECK(failed > 60);
  CHECK(failed < 140);
  CHECK(drawn("cuMemAlloc:p0.25@1=2") == codes);
  CHECK(drawn("cuMemAlloc:p0.25@2=2") != codes);
}

TEST_CASE("another process's memory comes and goes with the count of calls") {
  // cuInit, cuDevicePrimaryCtxRetain and each cuMemGetInfo count.
  REQUIRE(in_child({{"SIMCUDA_MEMORY_MB", "64"}, {"SIMCUDA_PRESSURE", "0:48:4:6"}}, [] {
    start();
    EXPECT(free_bytes() == 64 * kMiB);
    EXPECT(free_bytes() == 16 * kMiB);
    EXPECT(free_bytes() == 16 * kMiB);
    EXPECT(free_bytes() == 64 * kMiB);
  }));
}

TEST_CASE("another process's memory may be there from the first call on") {
  REQUIRE(in_child({{"SIMCUDA_MEMORY_MB", "64"}, {"SIMCUDA_PRESSURE", "0:48:1:4"}}, [] {
    start();
    EXPECT(free_bytes() == 16 * kMiB);
    EXPECT(free_bytes() == 64 * kMiB);
  }));
}

TEST_CASE("pressure takes no more than there is") {
  REQUIRE(in_child({{"SIMCUDA_MEMORY_MB", "64"}, {"SIMCUDA_PRESSURE", "0:48:4:5"}}, [] {
    start();
    const CUdeviceptr block = new_block(32 * kMiB);
    EXPECT(free_bytes() == 0);
    EXPECT(free_bytes() == 32 * kMiB);
    EXPECT_OK(cuMemFree(block));
    EXPECT(free_bytes() == 64 * kMiB);
  }));
}

TEST_CASE("a lost device fails every later call, other devices none") {
  REQUIRE(in_child({{"SIMCUDA_DEVICES", "2"}, {"SIMCUDA_LOSE", "0:3"}}, [] {
    start();
    const CUdeviceptr block = new_block(1);
    CUdeviceptr untouched = 0x77;
    EXPECT_CODE(cuMemAlloc(&untouched, 1), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_CODE(cuMemFree(block), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_CODE(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT(untouched == 0x77);
    start(1);
    EXPECT_OK(cuMemAlloc(&untouched, 1));
  }));
}

TEST_CASE("a context whose work died fails every later call until it ends, others none") {
  REQUIRE(in_child({{"SIMCUDA_LOSE", "0:cuMemsetD8@2:700"}}, [] {
    start();
    CUcontext primary = nullptr, other = nullptr;
    EXPECT_OK(cuCtxGetCurrent(&primary));
    const CUdeviceptr block = new_block(1);
    EXPECT_OK(cuMemsetD8(block, 1, 1));
    EXPECT_OK(cuMemsetD8(block, 1, 1));
    size_t bytes = 0;
    EXPECT_CODE(cuMemGetInfo(&bytes, nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_CODE(cuMemFree(block), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_CODE(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_OK(cuCtxCreate(&other, nullptr, 0, 0));
    EXPECT_OK(cuMemGetInfo(&bytes, nullptr));
    EXPECT_OK(cuCtxDestroy(other));
    EXPECT_OK(cuDevicePrimaryCtxReset(0));
    start();
    EXPECT_OK(cuMemFree(new_block(1)));
  }));
}

TEST_CASE("a fault, pressure or loss that is not understood keeps the driver from starting") {
  const std::pair<const char*, const char*> wrong[] = {
      {"SIMCUDA_FAIL", "cuMemAlloc_v2:0=2"},
      {"SIMCUDA_FAIL", "cuMemAlloc_v2:p2@1=2"},
      {"SIMCUDA_FAIL", "cuMemAlloc_v2:p0.5=2"},
      {"SIMCUDA_FAIL", "cuMemAlloc_v2:before=2"},
      {"SIMCUDA_PRESSURE", "0:48:6:4"},
      {"SIMCUDA_PRESSURE", "0:48"},
      {"SIMCUDA_LOSE", "0"},
      {"SIMCUDA_LOSE", "0:1:CUDA_ERROR_NONE"},
      {"SIMCUDA_LOSE", "0:cuMemAlloc@0"},
      {"SIMCUDA_LOSE", "0:cuNoSuchCall@1"},
      {"SIMCUDA_TAKES", "cuMemAlloc=2MB"},
      {"SIMCUDA_TAKES", "cuStreamCreate=2"},
      {"SIMCUDA_FREE_ASYNC", "never"},
      {"SIMCUDA_RACES", "yes"},
      {"SIMCUDA_RACES_FILE", "/no/such/folder/file"},
      {"SIMCUDA_SCHEDULE", "seed"},
      {"SIMCUDA_PITCH", "1000"},
      {"SIMCUDA_CLOCK", "fast"},
      {"SIMCUDA_LEAKS", "1"},
  };
  for (const auto& [name, value] : wrong) {
    INFO(name << "=" << value);
    CHECK(in_child({{"SIMCUDA_RACES", "report"}, {name, value}}, [] {
      std::fclose(stderr);
      EXPECT_CODE(cuInit(0), CUDA_ERROR_INVALID_VALUE);
    }));
  }
}
