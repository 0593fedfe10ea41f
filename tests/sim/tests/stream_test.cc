// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "support.h"
#include "tests/catch.h"

namespace {

// A device whose fills take long enough to be seen in flight.
constexpr Environment kSlowFills = {{"SIMCUDA_LATENCY", "cuMemsetD32Async=30ms"}};

constexpr size_t kWords = 1000;

CUdeviceptr words() {
  CUdeviceptr address = 0;
  EXPECT_OK(cuMemAlloc(&address, kWords * sizeof(uint32_t)));
  return address;
}

CUevent make_event(unsigned flags = CU_EVENT_DISABLE_TIMING) {
  CUevent event = nullptr;
  EXPECT_OK(cuEventCreate(&event, flags));
  return event;
}

// Reads on a stream of its own: no order but what the test made.
uint32_t peek(CUdeviceptr address) {
  const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  uint32_t word = 0;
  EXPECT_OK(cuMemcpyDtoHAsync(&word, address, sizeof word, stream));
  EXPECT_OK(cuStreamDestroy(stream));
  return word;
}

}  // namespace

TEST_CASE("work happens after the call, in the order of its stream") {
  REQUIRE(in_child(kSlowFills, [] {
    start();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr block = words();
    EXPECT_OK(cuMemsetD32Async(block, 1, kWords, stream));
    EXPECT_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuMemsetD32Async(block, 2, kWords, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuStreamQuery(stream));
    EXPECT(peek(block) == 2);
  }));
}

TEST_CASE("streams do not wait for each other") {
  REQUIRE(in_child(kSlowFills, [] {
    start();
    const CUstream slow = new_stream(CU_STREAM_NON_BLOCKING);
    const CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr block = words();
    for (int i = 0; i < 5; ++i) EXPECT_OK(cuMemsetD32Async(block, 1, kWords, slow));
    EXPECT_OK(cuStreamSynchronize(other));
    EXPECT_CODE(cuStreamQuery(slow), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuStreamQuery(slow));
  }));
}

TEST_CASE("the legacy stream and blocking streams wait for each other") {
  REQUIRE(in_child(kSlowFills, [] {
    start();
    const CUstream blocking = new_stream(CU_STREAM_DEFAULT);
    const CUdeviceptr block = words();
    EXPECT_OK(cuMemsetD32Async(block, 1, kWords, blocking));
    uint32_t word = 0;
    EXPECT_OK(cuMemcpyDtoH(&word, block, sizeof word));  // legacy: after the fill
    EXPECT(word == 1);
    EXPECT_OK(cuMemsetD32Async(block, 2, kWords, nullptr));
    EXPECT_OK(cuMemcpyDtoHAsync(&word, block, sizeof word, blocking));
    EXPECT(word == 2);
    EXPECT_OK(cuMemsetD32Async(block, 3, kWords, CU_STREAM_PER_THREAD));
    EXPECT_OK(cuMemcpyDtoH(&word, block, sizeof word));
    EXPECT(word == 3);
  }));
}

TEST_CASE("the legacy stream does not wait for non-blocking streams") {
  REQUIRE(in_child(kSlowFills, [] {
    start();
    const CUstream free_running = new_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr block = words();
    EXPECT_OK(cuMemsetD32Async(block, 1, kWords, free_running));
    EXPECT_OK(cuStreamSynchronize(nullptr));
    EXPECT_CODE(cuStreamQuery(free_running), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuStreamSynchronize(free_running));
  }));
}

TEST_CASE("an event orders streams and tells the host") {
  REQUIRE(in_child(kSlowFills, [] {
    start();
    const CUstream first = new_stream(CU_STREAM_NON_BLOCKING);
    const CUstream second = new_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr block = words();
    const CUevent event = make_event();
    EXPECT_OK(cuEventQuery(event));  // never recorded: complete
    EXPECT_OK(cuMemsetD32Async(block, 5, kWords, first));
    EXPECT_OK(cuEventRecord(event, first));
    EXPECT_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuStreamWaitEvent(second, event, 0));
    uint32_t word = 0;
    EXPECT_OK(cuMemcpyDtoHAsync(&word, block, sizeof word, second));
    EXPECT(word == 5);
    EXPECT_OK(cuEventQuery(event));
  }));
}

TEST_CASE("an event of the whole context waits for every stream") {
  REQUIRE(in_child(kSlowFills, [] {
    const CUcontext context = start();
    const CUevent event = make_event();
    EXPECT_OK(cuCtxRecordEvent(context, event));
    EXPECT_OK(cuEventQuery(event));
    const CUdeviceptr block = words();
    const CUstream one = new_stream(CU_STREAM_NON_BLOCKING);
    const CUstream gone = new_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cuMemsetD32Async(words(), 1, kWords, one));
    EXPECT_OK(cuMemsetD32Async(block, 2, kWords, gone));
    EXPECT_OK(cuMemsetD32Async(block, 3, kWords, gone));
    EXPECT_OK(cuStreamDestroy(gone));  // its work goes on
    EXPECT_OK(cuCtxRecordEvent(context, event));
    EXPECT_OK(cuStreamSynchronize(one));
    EXPECT_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuEventSynchronize(event));
    EXPECT(peek(block) == 3);
  }));
}

TEST_CASE("time between events is the time of the work between them") {
  REQUIRE(in_child(kSlowFills, [] {
    start();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const CUevent before = make_event(0);
    const CUevent after = make_event(0);
    EXPECT_OK(cuEventRecord(before, stream));
    EXPECT_OK(cuMemsetD32Async(words(), 1, kWords, stream));
    EXPECT_OK(cuEventRecord(after, stream));
    float milliseconds = 0;
    EXPECT_CODE(cuEventElapsedTime(&milliseconds, before, after), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuEventSynchronize(after));
    EXPECT_OK(cuEventElapsedTime(&milliseconds, before, after));
    EXPECT(milliseconds >= 30);
  }));
}

TEST_CASE("freeing memory waits for the device") {
  REQUIRE(in_child(kSlowFills, [] {
    start();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr used = words();
    const CUdeviceptr freed = words();
    EXPECT_OK(cuMemsetD32Async(used, 1, kWords, stream));
    EXPECT_OK(cuMemFree(freed));
    EXPECT_OK(cuStreamQuery(stream));
  }));
}

TEST_CASE("pageable memory is read at the call") {
  REQUIRE(in_child({{"SIMCUDA_LATENCY", "cuMemcpyHtoDAsync_v2=20ms"}}, [] {
    start();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr block = words();
    uint32_t value = 11;
    EXPECT_OK(cuMemcpyHtoDAsync(block, &value, sizeof value, stream));
    value = 12;
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT(peek(block) == 11);
  }));
}

TEST_CASE("a host function runs in its turn and may not call CUDA") {
  REQUIRE(in_child({}, [] {
    start();
    static std::atomic<int> code{-1};
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const auto callback = [](void* data) {
      CUdeviceptr address = 0;
      static_cast<std::atomic<int>*>(data)->store(cuMemAlloc(&address, 1));
    };
    EXPECT_OK(cuLaunchHostFunc(stream, callback, &code));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT(code == CUDA_ERROR_NOT_PERMITTED);
  }));
}

TEST_CASE("a kernel's twin runs on its stream with the parameters of the launch") {
  const std::string library = kernel_library();
  REQUIRE(in_child({{"SIMCUDA_KERNELS", library.c_str()}}, [] {
    start();
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    const CUfunction fill = kernel("_Z15slow_fill_wordsPjmjj");
    CUdeviceptr block = words();
    size_t count = kWords;
    uint32_t seed = 100;
    uint32_t delay_us = 20000;
    void* params[] = {&block, &count, &seed, &delay_us};
    EXPECT_OK(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, stream, params, nullptr));
    seed = 0;  // the launch has its own copy
    EXPECT_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT(peek(block + 5 * sizeof(uint32_t)) == 105);
    CUmodule module = nullptr;
    CUfunction missing = nullptr;
    EXPECT_OK(cuModuleLoadData(&module, "any image"));
    EXPECT_CODE(cuModuleGetFunction(&missing, module, "_Z7unknownv"), CUDA_ERROR_NOT_FOUND);
  }));
}

TEST_CASE("many threads allocate, launch and free at once") {
  REQUIRE(in_child({}, [] {
    const CUcontext context = start();
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 6; ++t) {
      threads.emplace_back([context, t] {
        EXPECT_OK(cuCtxSetCurrent(context));
        const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        for (uint32_t i = 0; i < 200; ++i) {
          const CUdeviceptr block = words();
          EXPECT_OK(cuMemsetD32Async(block, t * 1000 + i, kWords, stream));
          uint32_t word = 0;
          EXPECT_OK(cuMemcpyDtoHAsync(&word, block + 4, sizeof word, stream));
          EXPECT(word == t * 1000 + i);
          EXPECT_OK(cuMemsetD32Async(block, 0, kWords, CU_STREAM_PER_THREAD));
          EXPECT_OK(cuMemFree(block));
        }
        EXPECT_OK(cuStreamDestroy(stream));
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_OK(cuCtxSynchronize());
  }));
}

TEST_CASE("a stream that is full has whoever brings more wait") {
  CHECK(in_child({{"SIMCUDA_QUEUE", "2"}}, [] {
    CUcontext context = start();
    CUstream stream = nullptr;
    CUdeviceptr words = 0;
    std::atomic<bool> begun{false}, ends{false};
    std::atomic<int> handed{0};
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuMemAlloc(&words, 4));
    std::pair<std::atomic<bool>*, std::atomic<bool>*> flags{&begun, &ends};
    const auto hold = [](void* data) {
      const auto& [is_begun, is_over] = *static_cast<decltype(flags)*>(data);
      *is_begun = true;
      while (!*is_over) std::this_thread::yield();
    };
    EXPECT_OK(cuLaunchHostFunc(stream, hold, &flags));
    while (!begun) std::this_thread::yield();
    std::thread brings([&] {
      EXPECT_OK(cuCtxSetCurrent(context));
      for (int i = 0; i < 3; ++i, ++handed) EXPECT_OK(cuMemsetD8Async(words, 1, 4, stream));
      EXPECT(ends);  // the third had no place before
    });
    while (handed < 2) std::this_thread::yield();
    ends = true;
    brings.join();
    EXPECT_OK(cuStreamSynchronize(stream));
  }));
}
