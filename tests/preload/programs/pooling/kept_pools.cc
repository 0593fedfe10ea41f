// SPDX-License-Identifier: Apache-2.0
// What the driver's memory pools keep does not show in what the program is told.
// The program allocates in stream order and synchronises, and sets no release threshold unless the
// argument says so. What pools take and give back is read from the simulator.
//
//   kept_pools WAY [NUMBER]   NUMBER: the threshold that the program sets, or the MiB of which the
//                             device is short; in other ways 1: pools are not told of
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "../../../sim/include/simcuda/watch.h"
#include "../driver_codes.h"
#include "../test_clock.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

using test_clock::live_through;
using test_clock::live_until;

bool g_quiet = false;

SimcudaMemoryPools pools_now() {
  const auto ask =
      reinterpret_cast<void (*)(SimcudaMemoryPools*)>(dlsym(RTLD_DEFAULT, "simcuda_memory_pools"));
  SimcudaMemoryPools now{};
  if (ask != nullptr) ask(&now);
  return now;
}

void say_pools(const char* when) {
  const SimcudaMemoryPools now = pools_now();
  if (g_quiet) return;
  std::printf("%s: taken %llu times, given back %llu times, %llu MiB there\n", when,
              static_cast<unsigned long long>(now.taken),
              static_cast<unsigned long long>(now.given_back),
              static_cast<unsigned long long>(now.reserved_bytes / kMiB));
}

CUmemoryPool default_pool(CUdevice device = 0) {
  CUmemoryPool pool = nullptr;
  MUST(cuDeviceGetDefaultMemPool(&pool, device));
  return pool;
}

CUmemoryPool new_pool(CUdevice device = 0,
                      CUmemAllocationHandleType handles = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  properties.handleTypes = handles;
  CUmemoryPool pool = nullptr;
  MUST(cuMemPoolCreate(&pool, &properties));
  return pool;
}

void say_told(CUmemoryPool pool) {
  constexpr CUmemPool_attribute kAll[] = {
      CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
      CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH};
  std::printf("told:");
  for (const CUmemPool_attribute each : kAll) {
    cuuint64_t value = 0;
    const CUresult code = cuMemPoolGetAttribute(pool, each, &value);
    std::printf(" %d %llu", code, static_cast<unsigned long long>(value));
  }
  size_t free = 0, total = 0;
  MUST(cuMemGetInfo(&free, &total));
  std::printf(", free %zu of %zu\n", free, total);
}

// pool: nullptr is the current one.
CUdeviceptr allocate(CUmemoryPool pool, size_t bytes, CUstream stream) {
  CUdeviceptr block = 0;
  if (pool == nullptr) {
    MUST(cuMemAllocAsync(&block, bytes, stream));
  } else {
    MUST(cuMemAllocFromPoolAsync(&block, bytes, pool, stream));
  }
  MUST(cuMemsetD8Async(block, 1, bytes < kMiB ? bytes : kMiB, stream));
  return block;
}

void step(CUmemoryPool pool, CUstream stream, size_t mib = 64) {
  const CUdeviceptr one = allocate(pool, mib * kMiB, stream);
  const CUdeviceptr two = allocate(pool, 20 * kMiB, stream);
  MUST(cuMemFreeAsync(one, stream));
  MUST(cuMemFreeAsync(two, stream));
  MUST(cuStreamSynchronize(stream));
}

// A thousand steps of 5 ms, and what is told in and after them; then nothing is kept.
void steps(CUmemoryPool pool, CUmemoryPool asked) {
  const CUstream stream = timed::new_stream();
  for (int i = 0; i < 1000; ++i) {
    step(pool, stream);
    live_through(/*ms=*/5, /*steps=*/1);
    if (i % 250 == 0) say_told(asked);
  }
  say_pools("after 1000 steps");
  say_told(asked);
  live_until([] { return pools_now().reserved_bytes == 0; });
  say_pools("later");
  say_told(asked);
  step(pool, stream);
  say_told(asked);
}

// A second in which nothing is used.
void second() {
  const CUstream stream = timed::new_stream();
  step(nullptr, stream);
  live_through(/*ms=*/900, /*steps=*/18);
  say_pools("0.9 s later");
  live_through(/*ms=*/1000, /*steps=*/20);
  say_pools("1.9 s later");
  say_told(default_pool());
  // What was large once goes, and what is used each time stays.
  step(nullptr, stream, 128);
  for (int i = 0; i < 60; ++i) {
    step(nullptr, stream, 20);
    live_through(/*ms=*/50, /*steps=*/1);
  }
  say_pools("small steps");
  say_told(default_pool());
}

// The high-water mark is the program's own.
void marks() {
  const CUstream stream = timed::new_stream();
  for (const size_t mib : {100, 40, 60}) {
    step(nullptr, stream, mib);
    live_through(/*ms=*/1200, /*steps=*/24);
    say_told(default_pool());
  }
  cuuint64_t none = 0;
  SAY(cuMemPoolSetAttribute(default_pool(), CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
  say_told(default_pool());
  step(nullptr, stream, 40);
  say_told(default_pool());
  SAY(cuMemPoolSetAttribute(default_pool(), CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
  say_told(default_pool());
  none = 7;
  SAY(cuMemPoolSetAttribute(default_pool(), CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
  SAY(cuMemPoolSetAttribute(default_pool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, nullptr));
  SAY(cuMemPoolSetAttribute(nullptr, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none));
  say_told(default_pool());
}

// Once the program sets a threshold, before its first allocation or after some, it counts.
void sets(cuuint64_t threshold, bool first) {
  const CUstream stream = timed::new_stream();
  if (!first) step(nullptr, stream);
  SAY(cuMemPoolSetAttribute(default_pool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  step(nullptr, stream);
  const SimcudaMemoryPools before = pools_now();
  for (int i = 0; i < 100; ++i) {
    step(nullptr, stream);
    live_through(/*ms=*/20, /*steps=*/1);
  }
  const SimcudaMemoryPools after = pools_now();
  std::printf("taken %llu times, %llu MiB there\n",
              static_cast<unsigned long long>(after.taken - before.taken),
              static_cast<unsigned long long>(after.reserved_bytes / kMiB));
  say_told(default_pool());
}

// Two devices, each with a pool of its own current and the default one.
void devices() {
  CUstream streams[2];
  CUmemoryPool own[2];
  for (const int device : {0, 1}) {
    use_device(device);
    streams[device] = timed::new_stream();
    own[device] = new_pool(device);
  }
  for (int i = 0; i < 100; ++i) {
    for (const int device : {0, 1}) {
      step(nullptr, streams[device], device == 0 ? 64 : 30);
      step(own[device], streams[device], 16);
    }
    live_through(/*ms=*/5, /*steps=*/1);
  }
  say_pools("after 100 steps");
  for (const int device : {0, 1}) {
    use_device(device);
    say_told(default_pool(device));
    say_told(own[device]);
  }
  SAY(cuMemPoolDestroy(own[0]));
  live_until([] { return pools_now().reserved_bytes == 0; });
  say_told(own[1]);
  SAY(cuMemPoolDestroy(own[1]));
}

// Whatever is short of memory gets what pools keep, also another pool beside work that waits for
// the program.
void shortage(size_t mib) {
  const CUstream stream = timed::new_stream(), stuck = timed::new_stream();
  const CUmemoryPool own = new_pool(), other = new_pool();
  const size_t bytes = mib * kMiB;
  CUdeviceptr block = 0;
  const auto keep = [&](CUmemoryPool pool) {
    MUST(cuMemFreeAsync(allocate(pool, bytes, stream), stream));
    MUST(cuStreamSynchronize(stream));
  };
  for (const CUmemoryPool pool : {default_pool(), own}) {
    keep(pool);
    SAY(cuMemAlloc(&block, bytes));
    SAY(cuMemFree(block));
    keep(pool);
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle = 0;
    SAY(cuMemCreate(&handle, bytes, &properties, 0));
    SAY(cuMemRelease(handle));
    keep(pool);
    SAY(cuMemAllocManaged(&block, kMiB, CU_MEM_ATTACH_GLOBAL));
    SAY(cuMemFree(block));
  }
  keep(own);
  std::atomic<bool> end{false};
  MUST(cuLaunchHostFunc(
      stuck,
      [](void* flag) {
        while (!*static_cast<std::atomic<bool>*>(flag)) usleep(100);
      },
      &end));
  SAY(cuMemAllocFromPoolAsync(&block, bytes, other, stream));
  SAY(cuMemFreeAsync(block, stream));
  end = true;
  SAY(cuCtxSynchronize());
}

// Kernels use what is freed behind them, on several streams, while pools are trimmed.
void in_flight() {
  test_clock::let_go();
  const timed::Kernels kernels;
  CUstream streams[3];
  for (CUstream& stream : streams) stream = timed::new_stream();
  const CUdeviceptr total = allocate(nullptr, 4096, streams[0]);
  MUST(cuMemsetD8Async(total, 0, 4096, streams[0]));
  MUST(cuCtxSynchronize());
  for (int i = 0; i < 90; ++i) {
    const CUstream stream = streams[i % 3];
    const size_t words = (1 + static_cast<size_t>(i) % 7) * kMiB / 8;
    const CUdeviceptr block = allocate(nullptr, words * 4, stream);
    MUST(timed::fill_words(kernels, stream, block, words, static_cast<uint32_t>(i), 50));
    if (i % 3 == 0) MUST(timed::sum_words(kernels, stream, block, words, total, 50));
    MUST(cuMemFreeAsync(block, stream));
    test_clock::move_ms(40);
    if (i % 10 == 9) MUST(cuStreamSynchronize(streams[i % 2]));
  }
  MUST(cuCtxSynchronize());
  uint64_t sum[2] = {};
  MUST(cuMemcpyDtoH(sum, total, sizeof sum));
  std::printf("sum %llu\n", static_cast<unsigned long long>(sum[0]));
  MUST(cuMemFreeAsync(total, streams[0]));
  MUST(cuCtxSynchronize());
}

// Nothing is trimmed while a stream captures, and the capture holds.
void capture() {
  const CUstream stream = timed::new_stream(), other = timed::new_stream();
  step(nullptr, other);
  const SimcudaMemoryPools before = pools_now();
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  live_through(/*ms=*/3000, /*steps=*/30);
  std::printf("given back in the capture: %d\n", pools_now().given_back != before.given_back);
  CUdeviceptr block = 0;
  MUST(cuMemAllocAsync(&block, 64 * kMiB, other));
  MUST(cuMemsetD8Async(block, 1, kMiB, stream));
  CUgraph graph = nullptr;
  SAY(cuStreamEndCapture(stream, &graph));
  MUST(cuMemFreeAsync(block, other));
  MUST(cuCtxSynchronize());
  live_until([] { return pools_now().reserved_bytes == 0; });
  say_told(default_pool());
}

// The device is reset, and used again; pools of the program are destroyed before.
void reset() {
  for (int round = 0; round < 3; ++round) {
    CUcontext context = nullptr;
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    const CUstream stream = timed::new_stream();
    const CUmemoryPool own = new_pool();
    MUST(cuDeviceSetMemPool(0, own));
    for (int i = 0; i < 5; ++i) step(round % 2 == 0 ? own : nullptr, stream);
    say_told(own);
    say_told(default_pool());
    MUST(cuStreamDestroy(stream));
    SAY(cuDevicePrimaryCtxReset(0));
    say_pools("after the reset");
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    step(own, timed::new_stream());
    say_told(own);
    SAY(cuMemPoolDestroy(own));
    SAY(cuDevicePrimaryCtxReset(0));
  }
}

// A pool to be shared with other processes.
void exported() {
  const CUmemoryPool pool = new_pool(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const CUstream stream = timed::new_stream();
  int file = -1;
  SAY(cuMemPoolExportToShareableHandle(&file, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  for (int i = 0; i < 20; ++i) {
    step(pool, stream);
    live_through(/*ms=*/100, /*steps=*/1);
  }
  say_pools("exported");
  say_told(pool);
  cuuint64_t threshold = 64 * kMiB;
  SAY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  say_told(pool);
  SAY(cuMemPoolDestroy(pool));
  close(file);
}

// Threads that make, use, ask and destroy pools while time passes.
void threads() {
  CUcontext context = nullptr;
  MUST(cuCtxGetCurrent(&context));
  std::atomic<int> errors{0};
  std::vector<std::thread> all;
  for (int t = 0; t < 8; ++t) {
    all.emplace_back([&errors, context, t] {
      MUST(cuCtxSetCurrent(context));
      const CUstream stream = timed::new_stream();
      for (int i = 0; i < 60; ++i) {
        const CUmemoryPool own = t % 2 == 0 ? new_pool() : nullptr;
        step(own, stream, 4);
        cuuint64_t threshold = 1;
        errors += cuMemPoolGetAttribute(own != nullptr ? own : default_pool(),
                                        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) != 0;
        errors += threshold != 0;
        threshold = kMiB;
        if (t == 0) {
          errors += cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) != 0;
          errors += cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) != 0;
          errors += threshold != kMiB;
        }
        test_clock::move_ms(30);
        if (own != nullptr) errors += cuMemPoolDestroy(own) != 0;
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  std::printf("errors %d\n", errors.load());
  live_until([] { return pools_now().reserved_bytes == 0; });
  say_told(default_pool());
}

// The driver gives a new pool the handle of one that another thread just destroyed.
void handles() {
  CUcontext context = nullptr;
  MUST(cuCtxGetCurrent(&context));
  step(nullptr, timed::new_stream(), 4);
  test_clock::let_go();
  std::atomic<int> errors{0}, filled{0};
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t) {
    all.emplace_back([&, context, t] {
      MUST(cuCtxSetCurrent(context));
      const CUstream stream = timed::new_stream();
      for (int i = 0; i < 100; ++i) {
        const CUmemoryPool own = new_pool();
        cuuint64_t threshold = kMiB, set = kMiB;
        if (t == 0) errors += cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &set);
        usleep(300);  // until the other thread's call is over
        errors += cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
        errors += threshold != (t == 0 ? kMiB : 0);
        CUdeviceptr block = 0;
        unsigned char first = 0;
        MUST(cuMemAllocFromPoolAsync(&block, 64, own, stream));
        MUST(cuMemcpyDtoHAsync(&first, block, 1, stream));
        MUST(cuMemsetD8Async(block, 1, 64, stream));
        MUST(cuMemFreeAsync(block, stream));
        MUST(cuStreamSynchronize(stream));
        filled += first == 0xef;
        errors += cuMemPoolDestroy(own);
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  std::printf("errors %d\n", errors.load());
  std::printf("filled %d\n", filled.load());
}

// Contexts end while another thread's first request raises the threshold.
void closing() {
  CUcontext context = nullptr;
  MUST(cuCtxGetCurrent(&context));
  test_clock::let_go();
  const size_t before = free_memory();
  const CUstream stream = timed::new_stream();
  CUdeviceptr block = 0;
  std::atomic<bool> allocated{false};
  std::thread allocating([&] {
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAllocAsync(&block, 4 * kMiB, stream));
    allocated = true;
  });
  while (!allocated) {
    CUcontext other = nullptr;
    CUdeviceptr used = 0;
    MUST(cuCtxCreate(&other, nullptr, 0, 0));
    MUST(cuMemAlloc(&used, kMiB));
    MUST(cuMemFree(used));
    MUST(cuCtxDestroy(other));
  }
  allocating.join();
  MUST(cuMemFreeAsync(block, stream));
  MUST(cuStreamSynchronize(stream));
  std::printf("all is free again: %d\n", free_memory() == before);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string way = argv[1];
  const uint64_t number = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  g_quiet = number == 1;
  end_if_it_hangs();
  if (way == "reset") MUST(cuInit(0));
  if (way != "reset") use_device(0);
  test_clock::stop();
  if (way == "default") steps(nullptr, default_pool());
  if (way == "current") {
    const CUmemoryPool own = new_pool();
    MUST(cuDeviceSetMemPool(0, own));
    steps(nullptr, own);
  }
  if (way == "named") {
    const CUmemoryPool own = new_pool();
    steps(own, own);
  }
  if (way == "second") second();
  if (way == "marks") marks();
  if (way == "sets") sets(number, /*first=*/true);
  if (way == "sets_later") sets(number, /*first=*/false);
  if (way == "devices") devices();
  if (way == "shortage") shortage(number);
  if (way == "in_flight") in_flight();
  if (way == "capture") capture();
  if (way == "reset") reset();
  if (way == "exported") exported();
  if (way == "threads") threads();
  if (way == "handles") handles();
  if (way == "closing") closing();
  std::printf("done\n");
  return 0;
}
