// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>

#include "support.h"
#include "tests/catch.h"

namespace {

void* pin(size_t bytes, unsigned flags = 0) {
  void* block = nullptr;
  EXPECT_OK(cuMemHostAlloc(&block, bytes, flags));
  return block;
}

}  // namespace

TEST_CASE("pinned memory keeps its flags and is told from device memory") {
  REQUIRE(in_child({}, [] {
    start();
    void* pinned = nullptr;
    EXPECT_OK(cuMemHostAlloc(&pinned, 5000, CU_MEMHOSTALLOC_PORTABLE));
    unsigned flags = 0;
    EXPECT_OK(cuMemHostGetFlags(&flags, pinned));
    EXPECT(flags & CU_MEMHOSTALLOC_PORTABLE);
    CUdeviceptr mapped = 0;
    EXPECT_OK(cuMemHostGetDevicePointer(&mapped, static_cast<char*>(pinned) + 10, 0));
    EXPECT(mapped == reinterpret_cast<CUdeviceptr>(pinned) + 10);
    EXPECT_CODE(cuMemFree(reinterpret_cast<CUdeviceptr>(pinned)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFreeHost(pinned));
    EXPECT_CODE(cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
  }));
}

TEST_CASE("pinned memory is zeroed whole pages") {
  REQUIRE(in_child({}, [] {
    start();
    for (const size_t bytes : {size_t{1}, size_t{8192}, size_t{100000}}) {
      for (int again = 0; again < 2; ++again) {
        auto* const block = static_cast<char*>(pin(bytes));
        EXPECT(reinterpret_cast<uintptr_t>(block) % 4096 == 0);
        EXPECT(std::all_of(block, block + bytes, [](char byte) { return byte == 0; }));
        std::fill_n(block, bytes, 'x');
        EXPECT_OK(cuMemFreeHost(block));
      }
    }
  }));
}

TEST_CASE("no bytes of pinned memory are a null pointer") {
  REQUIRE(in_child({}, [] {
    start();
    int local = 0;
    void* block = &local;
    EXPECT_OK(cuMemHostAlloc(&block, 0, 0));
    EXPECT(block == nullptr);
    block = &local;
    EXPECT_OK(cuMemAllocHost(&block, 0));
    EXPECT(block == nullptr);
    EXPECT_OK(cuMemFreeHost(block));
  }));
}

TEST_CASE("wrong requests for pinned memory are refused") {
  REQUIRE(in_child({}, [] {
    start();
    void* block = nullptr;
    EXPECT_CODE(cuMemHostAlloc(&block, 4096, 0x40), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemHostAlloc(nullptr, 4096, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemHostAlloc(&block, size_t{1} << 46, 0), CUDA_ERROR_OUT_OF_MEMORY);
  }));
}

TEST_CASE("wrong frees and registrations of pinned memory are invalid values") {
  REQUIRE(in_child({}, [] {
    start();
    auto* const block = static_cast<char*>(pin(8192));
    CUdeviceptr device = 0;
    int local = 0;
    EXPECT_OK(cuMemAlloc(&device, 4096));
    for (void* wrong : {static_cast<void*>(block + 100), static_cast<void*>(&local),
                        reinterpret_cast<void*>(device)}) {
      EXPECT_CODE(cuMemFreeHost(wrong), CUDA_ERROR_INVALID_VALUE);
    }
    EXPECT_CODE(cuMemHostRegister(block + 100, 4096, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemHostUnregister(block), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemFree(reinterpret_cast<CUdeviceptr>(block)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFree(device));
    EXPECT_OK(cuMemFreeHost(block));
    EXPECT_OK(cuMemFreeHost(nullptr));
    EXPECT_OK(cuMemHostRegister(&local, sizeof local, 0));
    EXPECT_CODE(cuMemHostRegister(&local, sizeof local, 0),
                CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    EXPECT_OK(cuMemHostUnregister(&local));
    EXPECT_CODE(cuMemHostUnregister(&local), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  }));
}

TEST_CASE("a global capture forbids pinned memory to come or go, a relaxed one does not") {
  REQUIRE(in_child({}, [] {
    start();
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    void* const before = pin(4096);
    void* during = nullptr;
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_CODE(cuMemHostAlloc(&during, 4096, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_CODE(cuMemFreeHost(before), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_OK(cuMemFreeHost(before));
    EXPECT_OK(cuMemHostAlloc(&during, 4096, 0));
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
  }));
}

TEST_CASE("the free of pinned memory waits for the device, its allocation does not") {
  REQUIRE(in_child({{"SIMCUDA_LATENCY", "cuMemsetD8Async=100ms"}}, [] {
    start();
    CUstream stream = nullptr;
    CUdeviceptr device = 0;
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuMemAlloc(&device, 4096));
    EXPECT_OK(cuMemsetD8Async(device, 1, 4096, stream));
    void* const block = pin(4096);
    EXPECT_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuMemFreeHost(block));
    EXPECT_OK(cuStreamQuery(stream));
  }));
}

TEST_CASE("a synchronous fill of memory that the host reads is over when it returns") {
  REQUIRE(in_child({{"SIMCUDA_LATENCY", "cuMemsetD8=100ms"}}, [] {
    start();
    CUdeviceptr managed = 0;
    CUdeviceptr device = 0;
    EXPECT_OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    EXPECT_OK(cuMemAlloc(&device, 4096));
    char local[64] = {};
    EXPECT_OK(cuMemHostRegister(local, sizeof local, 0));
    for (char* memory :
         {static_cast<char*>(pin(4096)), reinterpret_cast<char*>(managed), &local[0]}) {
      EXPECT_OK(cuMemsetD8(reinterpret_cast<CUdeviceptr>(memory), 7, sizeof local));
      EXPECT(std::count(memory, memory + sizeof local, 7) == sizeof local);
    }
    EXPECT_OK(cuMemsetD8(device, 7, 4096));
    EXPECT_CODE(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuCtxSynchronize());
  }));
}
