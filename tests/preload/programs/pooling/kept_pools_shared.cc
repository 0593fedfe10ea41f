// SPDX-License-Identifier: Apache-2.0
// Memory of the driver's pools is right while pools are trimmed, whoever shares them.
// Each block is written, read back and compared; time passes meanwhile, so that what was not used
// lately is trimmed between two steps.
//
//   kept_pools_shared own|one THREADS  threads with a pool each, or all with one; every second of
//                                      the own pools outlives its thread
//   kept_pools_shared graphs           graphs that write a pool's block live and are launched
//   kept_pools_shared peers            a second device may access a pool of the first
//   kept_pools_shared exported         another descriptor of the pool opens its blocks
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "../../../sim/include/simcuda/watch.h"
#include "../driver_codes.h"
#include "../test_clock.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

std::atomic<int> g_wrong{0};

uint64_t pools_have() {
  const auto ask =
      reinterpret_cast<void (*)(SimcudaMemoryPools*)>(dlsym(RTLD_DEFAULT, "simcuda_memory_pools"));
  SimcudaMemoryPools now{};
  if (ask != nullptr) ask(&now);
  return now.reserved_bytes;
}

CUmemoryPool new_pool(CUmemAllocationHandleType handles = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.handleTypes = handles;
  CUmemoryPool pool = nullptr;
  MUST(cuMemPoolCreate(&pool, &properties));
  return pool;
}

void compare(CUdeviceptr block, size_t bytes, unsigned char value) {
  std::vector<unsigned char> there(bytes);
  MUST(cuMemcpyDtoH(there.data(), block, bytes));
  g_wrong += std::all_of(there.begin(), there.end(), [=](auto b) { return b == value; }) ? 0 : 1;
}

// Several blocks of changing sizes, of which only the ends are written.
void step(CUmemoryPool pool, CUstream stream, unsigned number) {
  constexpr size_t kWritten = 4096;
  CUdeviceptr blocks[3];
  for (unsigned i = 0; i < 3; ++i) {
    const size_t bytes = (1 + (number * 7 + i * 5) % 40) * kMiB / 2;
    MUST(cuMemAllocFromPoolAsync(&blocks[i], bytes, pool, stream));
    MUST(cuMemsetD8Async(blocks[i], static_cast<unsigned char>(number + i), kWritten, stream));
  }
  MUST(cuStreamSynchronize(stream));
  for (unsigned i = 0; i < 3; ++i) {
    compare(blocks[i], kWritten, static_cast<unsigned char>(number + i));
    MUST(cuMemFreeAsync(blocks[i], stream));
  }
  if (number % 3 == 0) MUST(cuStreamSynchronize(stream));
}

void say_end() {
  MUST(cuCtxSynchronize());
  test_clock::live_until([] { return pools_have() == 0; });
  size_t free = 0, total = 0;
  MUST(cuMemGetInfo(&free, &total));
  std::printf("wrong %d, free %zu of %zu\n", g_wrong.load(), free, total);
}

void threads(int count, bool own) {
  CUcontext context = nullptr;
  MUST(cuCtxGetCurrent(&context));
  const CUmemoryPool one = new_pool();
  std::vector<CUmemoryPool> left(static_cast<size_t>(count), nullptr);
  std::vector<std::thread> all;
  for (int t = 0; t < count; ++t) {
    all.emplace_back([=, &left] {
      MUST(cuCtxSetCurrent(context));
      const CUstream stream = timed::new_stream();
      const CUmemoryPool pool = own ? new_pool() : one;
      for (unsigned i = 0; i < 20; ++i) {
        step(pool, stream, static_cast<unsigned>(t) * 20 + i);
        test_clock::move_ms(20);
      }
      MUST(cuStreamSynchronize(stream));
      if (own && t % 2 == 0) MUST(cuMemPoolDestroy(pool));
      if (own && t % 2 != 0) left[static_cast<size_t>(t)] = pool;
    });
  }
  for (std::thread& thread : all) thread.join();
  say_end();  // the pools that are left must be trimmed for that
  for (const CUmemoryPool pool : left) {
    if (pool != nullptr) MUST(cuMemPoolDestroy(pool));
  }
}

CUgraphExec graph_over(CUstream stream, CUdeviceptr block, unsigned char value) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(cuMemsetD8Async(block + kMiB, value, kMiB, stream));
  MUST(cuMemcpyDtoDAsync(block, block + kMiB, kMiB, stream));
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiate(&exec, graph, 0));
  MUST(cuGraphDestroy(graph));
  return exec;
}

void graphs() {
  const CUmemoryPool pool = new_pool();
  const CUstream stream = timed::new_stream(), other = timed::new_stream();
  CUdeviceptr block = 0;
  MUST(cuMemAllocFromPoolAsync(&block, 4 * kMiB, pool, stream));
  MUST(cuStreamSynchronize(stream));
  const CUgraphExec execs[] = {graph_over(stream, block, 3), graph_over(stream, block, 5)};
  for (unsigned i = 0; i < 60; ++i) {
    MUST(cuGraphLaunch(execs[i % 2], stream));
    step(pool, other, i);
    test_clock::live_through(/*ms=*/i % 20 == 0 ? 1500 : 20, /*steps=*/i % 20 == 0 ? 15 : 1);
    MUST(cuStreamSynchronize(stream));
    compare(block, kMiB, i % 2 == 0 ? 3 : 5);
  }
  for (const CUgraphExec exec : execs) MUST(cuGraphExecDestroy(exec));
  MUST(cuMemFreeAsync(block, stream));
  say_end();
  SAY(cuMemPoolDestroy(pool));
}

void peers() {
  CUcontext first = nullptr;
  MUST(cuCtxGetCurrent(&first));
  const CUmemoryPool pool = new_pool();
  const CUstream stream = timed::new_stream();
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 1},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  SAY(cuMemPoolSetAccess(pool, &access, 1));
  const CUcontext second = use_device(1);
  const CUstream there = timed::new_stream();
  CUdeviceptr copy = 0;
  MUST(cuMemAlloc(&copy, kMiB));
  for (unsigned i = 0; i < 40; ++i) {
    CUdeviceptr block = 0;
    MUST(cuCtxSetCurrent(first));
    MUST(cuMemAllocFromPoolAsync(&block, (1 + i % 9) * 4 * kMiB, pool, stream));
    MUST(cuMemsetD8Async(block, static_cast<unsigned char>(i), kMiB, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuCtxSetCurrent(second));
    MUST(cuMemcpyPeerAsync(copy, second, block, first, kMiB, there));
    MUST(cuStreamSynchronize(there));
    compare(copy, kMiB, static_cast<unsigned char>(i));
    MUST(cuMemFreeAsync(block, stream));
    test_clock::live_through(/*ms=*/i % 10 == 0 ? 1500 : 20, /*steps=*/i % 10 == 0 ? 15 : 1);
  }
  CUmemAccess_flags flags{};
  CUmemLocation where{CU_MEM_LOCATION_TYPE_DEVICE, 1};
  SAY(cuMemPoolGetAccess(&flags, pool, &where));
  std::printf("access %d\n", static_cast<int>(flags));
  MUST(cuMemFree(copy));
  MUST(cuCtxSetCurrent(first));
  say_end();
  SAY(cuMemPoolDestroy(pool));
}

void exported() {
  const CUmemoryPool pool = new_pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const CUmemoryPool beside = new_pool();
  const CUstream stream = timed::new_stream();
  int file = -1;
  SAY(cuMemPoolExportToShareableHandle(&file, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUdeviceptr block = 0;
  MUST(cuMemAllocFromPoolAsync(&block, 6 * kMiB, pool, stream));
  MUST(cuMemsetD8Async(block, 9, kMiB, stream));
  CUmemPoolPtrExportData data{};
  SAY(cuMemPoolExportPointer(&data, block));
  for (unsigned i = 0; i < 40; ++i) {
    step(i % 2 == 0 ? pool : beside, stream, i);
    test_clock::live_through(/*ms=*/i % 10 == 0 ? 1500 : 20, /*steps=*/i % 10 == 0 ? 15 : 1);
    compare(block, kMiB, 9);
  }
  cuuint64_t threshold = 1, reserved = 0;
  SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
  std::printf("threshold %llu, reserved %llu\n", static_cast<unsigned long long>(threshold),
              static_cast<unsigned long long>(reserved));
  MUST(cuMemFreeAsync(block, stream));
  MUST(cuStreamSynchronize(stream));
  SAY(cuMemPoolDestroy(pool));
  close(file);
  say_end();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string way = argv[1];
  end_if_it_hangs();
  use_device(0);
  test_clock::stop();
  if (way == "own" || way == "one") threads(std::atoi(argv[2]), way == "own");
  if (way == "graphs") graphs();
  if (way == "peers") peers();
  if (way == "exported") exported();
  std::printf("done\n");
  return 0;
}
