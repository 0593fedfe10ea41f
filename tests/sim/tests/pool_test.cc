// SPDX-License-Identifier: Apache-2.0
// What memory pools keep, when they give it back, and who may have it again.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "pools.h"
#include "tests/catch.h"
#include "tests/hangs.h"

namespace {

// Work that ends when the program says so.
struct Gate {
  std::atomic<bool> open{false};

  void hold(CUstream stream) { EXPECT_OK(cuLaunchHostFunc(stream, wait, this)); }
  static void wait(void* gate) {
    while (!static_cast<Gate*>(gate)->open) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
};

// Waits until the stream has got there, by no wait that CUDA knows of; then so much is in use.
void await_unseen(CUmemoryPool pool, uint64_t left = 0) {
  EXPECT(comes_true([=] { return told(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == left; }));
}

}  // namespace

TEST_CASE("a pool keeps what is freed until the next synchronisation, and then its threshold") {
  REQUIRE(in_child({}, [] {
    start();
    const size_t before = free_bytes();
    const CUmemoryPool pool = default_pool();
    const CUstream stream = apart();
    const CUdeviceptr big = ordered(6 * kUnit, stream), small = ordered(1000, stream);
    expect_memory(pool, 7 * kUnit, 6 * kUnit + 1000);
    EXPECT_OK(cuMemFreeAsync(big, stream));
    await_unseen(pool, 1000);
    EXPECT(before - free_bytes() == 7 * kUnit);
    EXPECT_OK(cuStreamSynchronize(stream));
    expect_memory(pool, kUnit, 1000);
    EXPECT(before - free_bytes() == kUnit);

    set_threshold(pool, 4 * kUnit);
    EXPECT_OK(cuMemFreeAsync(ordered(6 * kUnit, stream), stream));
    CUevent event = nullptr;
    EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_OK(cuEventSynchronize(event));
    expect_memory(pool, 4 * kUnit, 1000);

    EXPECT_OK(cuMemPoolTrimTo(pool, 2 * kUnit));
    expect_memory(pool, 2 * kUnit, 1000);
    EXPECT_OK(cuMemPoolTrimTo(pool, 3 * kUnit));
    expect_memory(pool, 2 * kUnit, 1000);
    EXPECT_OK(cuMemPoolTrimTo(pool, 0));
    expect_memory(pool, kUnit, 1000);  // outstanding allocations stay
    EXPECT_OK(cuMemFreeAsync(small, stream));
    EXPECT_OK(cuCtxSynchronize());
    expect_memory(pool, kUnit, 0);  // below the threshold
    EXPECT_OK(cuMemPoolTrimTo(pool, 0));
    EXPECT(free_bytes() == before);
  }));
}

TEST_CASE("high-water marks are put back to what there is") {
  REQUIRE(in_child({}, [] {
    start();
    const CUmemoryPool pool = default_pool();
    const CUstream stream = apart();
    set_threshold(pool, UINT64_MAX);
    EXPECT_OK(cuMemFreeAsync(ordered(5 * kUnit, stream), stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    const CUdeviceptr kept = ordered(kUnit, stream);
    EXPECT(told(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 5 * kUnit);
    EXPECT(told(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 5 * kUnit);
    EXPECT_OK(cuMemPoolTrimTo(pool, 0));
    cuuint64_t none = 0, some = kUnit;
    EXPECT_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &none));
    EXPECT(told(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == kUnit);
    EXPECT(told(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 5 * kUnit);
    EXPECT_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
    EXPECT(told(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == kUnit);
    EXPECT_CODE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &some),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &none),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFree(kept));
  }));
}

TEST_CASE("pools take memory in steps, and less where a step is not there") {
  REQUIRE(in_child({{"SIMCUDA_MEMORY_MB", "72"}, {"SIMCUDA_POOL_STEP_MB", "32"}}, [] {
    start();
    const CUmemoryPool pool = default_pool();
    const CUstream stream = apart();
    const CUdeviceptr one = ordered(512, stream);
    expect_memory(pool, 32 * kMiB, 512);
    const CUdeviceptr two = ordered(33 * kMiB, stream);  // beyond what is left of the first
    expect_memory(pool, 66 * kMiB, 33 * kMiB + 512);
    EXPECT_OK(cuMemFreeAsync(two, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    expect_memory(pool, 32 * kMiB, 512);
    EXPECT_OK(cuMemFree(one));
    expect_memory(pool, 0, 0);
  }));
}

TEST_CASE("what a pool keeps is not there for others, and what lies unused in it is put together") {
  REQUIRE(in_child({{"SIMCUDA_MEMORY_MB", "16"}}, [] {
    start();
    const CUmemoryPool pool = default_pool(), other = new_pool();
    const CUstream stream = apart();
    set_threshold(pool, UINT64_MAX);
    CUdeviceptr blocks[8] = {}, block = 0;
    for (CUdeviceptr& each : blocks) each = ordered(kUnit, stream);
    for (int i = 0; i < 8; i += 2) EXPECT_OK(cuMemFreeAsync(blocks[i], stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    expect_memory(pool, 8 * kUnit, 4 * kUnit);
    EXPECT(free_bytes() == 0);
    EXPECT_CODE(cuMemAlloc(&block, kUnit), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_CODE(cuMemAllocFromPoolAsync(&block, kUnit, other, stream), CUDA_ERROR_OUT_OF_MEMORY);
    // Four gaps of 2 MiB, and a request of 8.
    EXPECT_OK(cuMemAllocAsync(&block, 4 * kUnit, stream));
    expect_memory(pool, 8 * kUnit, 8 * kUnit);
    EXPECT_OK(cuMemFreeAsync(block, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuMemPoolTrimTo(pool, 0));
    EXPECT_OK(cuMemAllocFromPoolAsync(&block, kUnit, other, stream));
    EXPECT_OK(cuMemAlloc(&block, kUnit));
  }));
}

TEST_CASE("a pool holds no more than its greatest size") {
  REQUIRE(in_child({}, [] {
    start();
    const CUmemoryPool pool = new_pool(CU_MEM_HANDLE_TYPE_NONE, 4 * kUnit);
    CUdeviceptr block = 0;
    EXPECT_CODE(cuMemAllocFromPoolAsync(&block, 5 * kUnit, pool, nullptr),
                CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_OK(cuMemAllocFromPoolAsync(&block, 4 * kUnit, pool, nullptr));
  }));
}

TEST_CASE("a pool that is destroyed gives its memory back with its last allocation") {
  REQUIRE(in_child({}, [] {
    start();
    const size_t before = free_bytes();
    const CUmemoryPool pool = new_pool();
    const CUstream stream = apart();
    set_threshold(pool, UINT64_MAX);
    CUdeviceptr one = 0, two = 0;
    EXPECT_OK(cuMemAllocFromPoolAsync(&one, kUnit, pool, stream));
    EXPECT_OK(cuMemAllocFromPoolAsync(&two, kUnit, pool, stream));
    EXPECT_OK(cuMemFreeAsync(one, stream));
    EXPECT_OK(cuMemPoolDestroy(pool));
    EXPECT_CODE(cuMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemsetD8Async(two, 1, kUnit, stream));
    EXPECT(before - free_bytes() == 2 * kUnit);
    EXPECT_OK(cuMemFreeAsync(two, stream));
    EXPECT(comes_true([=] { return free_bytes() == before; }));
  }));
}

TEST_CASE("memory freed on a stream serves that stream at once") {
  REQUIRE(in_child({{"SIMCUDA_RACES", "abort"}}, [] {
    start();
    const CUmemoryPool pool = default_pool();
    const CUstream stream = apart();
    Gate gate;
    const CUdeviceptr first = ordered(3 * kUnit, stream);
    EXPECT_OK(cuMemsetD8Async(first, 1, 3 * kUnit, stream));
    gate.hold(stream);
    EXPECT_OK(cuMemFreeAsync(first, stream));
    expect_memory(pool, 3 * kUnit, 3 * kUnit);  // the stream is not there yet
    const CUdeviceptr one = ordered(kUnit, stream), two = ordered(2 * kUnit, stream);
    EXPECT(one == first && two == first + kUnit);
    expect_memory(pool, 3 * kUnit, 3 * kUnit);
    EXPECT_OK(cuMemsetD8Async(two, 2, 2 * kUnit, stream));
    gate.open = true;
    EXPECT_OK(cuStreamSynchronize(stream));
    expect_memory(pool, 3 * kUnit, 3 * kUnit);  // the old allocation's end ends nothing of the new
    CUdeviceptr base = 0;
    EXPECT_OK(cuMemGetAddressRange(&base, nullptr, first + 2 * kUnit));
    EXPECT(base == two);
  }));
}

TEST_CASE(
    "another stream has freed memory by event, by progress or by a wait, as the pool allows") {
  REQUIRE(in_child({{"SIMCUDA_MEMORY_MB", "16"}}, [] {
    start();
    const CUmemoryPool pool = default_pool();
    const CUstream one = apart(), two = apart(), three = apart();
    set_threshold(pool, UINT64_MAX);
    const auto free_behind = [&](Gate& gate) {
      const CUdeviceptr block = ordered(6 * kUnit, one);
      gate.hold(one);
      EXPECT_OK(cuMemFreeAsync(block, one));
      return block;
    };
    {  // unordered: other memory, as long as there is some
      Gate gate;
      const CUdeviceptr block = free_behind(gate);
      const CUdeviceptr elsewhere = ordered(kUnit, two);
      EXPECT(elsewhere < block || elsewhere >= block + 6 * kUnit);
      EXPECT_OK(cuMemFreeAsync(elsewhere, two));
      EXPECT_OK(cuStreamSynchronize(two));
      // After the free by an event.
      after(three, one);
      const CUdeviceptr next = ordered(6 * kUnit, three);
      EXPECT(next == block);
      EXPECT_OK(cuMemFreeAsync(next, three));
      gate.open = true;
      EXPECT_OK(cuCtxSynchronize());
    }
    {  // the same, not allowed: the allocation waits, with nothing else to be had
      set_flag(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 0);
      set_flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
      Gate gate;
      free_behind(gate);
      after(three, one);
      std::atomic<bool> had{false};
      std::thread waits([&] {
        start();
        EXPECT_OK(cuMemFreeAsync(ordered(6 * kUnit, three), three));
        had = true;
      });
      // One that does not wait has it by now, unless the machine is slow; one that does, never.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT(!had);
      gate.open = true;
      waits.join();
      EXPECT_OK(cuCtxSynchronize());
    }
    {  // the driver makes the order itself, and what follows in the stream comes after it
      set_flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
      Gate gate;
      const CUdeviceptr block = free_behind(gate);
      const CUdeviceptr next = ordered(6 * kUnit, two);
      EXPECT(next == block);
      EXPECT_CODE(cuStreamQuery(two), CUDA_ERROR_NOT_READY);
      gate.open = true;
      EXPECT_OK(cuMemFreeAsync(next, two));
      EXPECT_OK(cuCtxSynchronize());
    }
    {  // progress that the host has not waited for
      EXPECT_OK(cuMemPoolTrimTo(pool, 0));
      Gate gate;
      gate.open = true;
      set_flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
      CUdeviceptr block = ordered(kUnit, one);
      EXPECT_OK(cuMemFreeAsync(block, one));
      await_unseen(pool);
      const CUdeviceptr elsewhere = ordered(kUnit, two);
      EXPECT(elsewhere != block);
      EXPECT_OK(cuMemFree(elsewhere));
      set_flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 1);
      EXPECT_OK(cuMemPoolTrimTo(pool, 0));
      block = ordered(kUnit, one);
      EXPECT_OK(cuMemFreeAsync(block, one));
      await_unseen(pool);
      EXPECT(ordered(kUnit, two) == block);
    }
  }));
}

TEST_CASE("memory handed out again is a race for who has no order with it, whatever ran when") {
  const TemporaryFile findings;
  REQUIRE(in_child({{"SIMCUDA_RACES", "report"}, {"SIMCUDA_RACES_FILE", findings.path()}}, [] {
    start();
    const CUstream one = apart(), two = apart();
    const CUdeviceptr block = ordered(kUnit, one);
    EXPECT_OK(cuMemFreeAsync(block, one));
    EXPECT(ordered(kUnit, one) == block);
    EXPECT_OK(cuMemsetD8Async(block, 1, kUnit, one));
    after(two, one);
    EXPECT_OK(cuMemsetD8Async(block, 2, kUnit, two));  // in order
    EXPECT_OK(cuMemsetD8Async(block, 3, kUnit, one));  // not after the last
  }));
  const auto lines = findings.lines();
  REQUIRE(!lines.empty());
  CHECK(lines[0].find("race") != std::string::npos);
  size_t races = 0;
  for (const std::string& line : lines) races += line.starts_with("simcuda: race") ? 1 : 0;
  CHECK(races == 1);
}

TEST_CASE("memory that a pool has from the device has no past, to its last byte") {
  REQUIRE(in_child({{"SIMCUDA_RACES", "abort"}, {"SIMCUDA_MEMORY_MB", "2"}}, [] {
    start();
    const CUstream one = apart(), two = apart();
    CUdeviceptr plain = 0;
    EXPECT_OK(cuMemAlloc(&plain, kUnit));
    EXPECT_OK(cuMemsetD8Async(plain, 1, kUnit, one));
    EXPECT_OK(cuMemFreeAsync(plain, one));
    EXPECT(comes_true([] { return free_bytes() != 0; }));  // the host does not wait for it
    for (int i = 0; i < 3; ++i) {
      EXPECT_OK(cuMemsetD8Async(ordered(1000, two), 2, 1000, two));
    }
    EXPECT_OK(cuCtxSynchronize());
  }));
}

TEST_CASE("streams that share a pool in every order have no race in it") {
  REQUIRE(in_child({{"SIMCUDA_RACES", "abort"}}, [] {
    start();
    CUstream streams[3] = {apart(), apart(), new_stream(CU_STREAM_DEFAULT)};
    CUdeviceptr blocks[3][4] = {};
    set_threshold(default_pool(), 3 * kUnit);
    uint64_t state = 7;
    const auto draw = [&](uint64_t below) {
      state = state * 6364136223846793005 + 1442695040888963407;
      return (state >> 33) % below;
    };
    for (int i = 0; i < 4000; ++i) {
      const uint64_t lane = draw(3);
      CUdeviceptr& block = blocks[lane][draw(4)];
      if (block == 0) {
        block = ordered(1 + draw(3 * kMiB), streams[lane]);
        EXPECT_OK(cuMemsetD8Async(block, 1, 1, streams[lane]));
      } else {
        EXPECT_OK(cuMemFreeAsync(block, streams[lane]));
        block = 0;
      }
      if (draw(10) == 0) after(streams[draw(3)], streams[lane]);
      if (draw(50) == 0) EXPECT_OK(cuStreamSynchronize(streams[draw(3)]));
    }
    EXPECT_OK(cuCtxSynchronize());
  }));
}

TEST_CASE("units are made and mapped while a stream is being captured") {
  REQUIRE(in_child({}, [] {
    start();
    const CUstream stream = apart();
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle unit = 0;
    CUdeviceptr range = 0;
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_OK(cuMemAddressReserve(&range, kUnit, 0, 0, 0));
    EXPECT_OK(cuMemCreate(&unit, kUnit, &properties, 0));
    EXPECT_OK(cuMemMap(range, kUnit, 0, unit, 0));
    EXPECT_OK(cuMemSetAccess(range, kUnit, &access, 1));
    EXPECT_OK(cuMemsetD8Async(range, 1, kUnit, stream));
    CUgraph graph = nullptr;
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
    EXPECT(graph != nullptr);
  }));
}
