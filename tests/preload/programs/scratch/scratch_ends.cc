// SPDX-License-Identifier: Apache-2.0
// The scratch cache, when streams, contexts, pools and processes end; wrong frees; threads.
// Stream-ordered blocks that were freed, when their stream, context, pool or device's memory ends,
// and what the driver says about their addresses. The argument chooses.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <initializer_list>
#include <thread>
#include <vector>

#include "scratch_blocks.h"

namespace {

constexpr size_t kBytes = 8 * kMiB;

void say_used(CUmemoryPool pool) {
  cuuint64_t used = 0;
  SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  std::printf("used: %llu MiB\n", static_cast<unsigned long long>(used / kMiB));
}

void say_range(CUdeviceptr address, CUdeviceptr block) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (SAY(cuMemGetAddressRange(&base, &bytes, address)) != CUDA_SUCCESS) return;
  std::printf("offset %lld, %zu bytes\n", static_cast<long long>(block - base), bytes);
}

// Frees that are wrong, and frees of other kinds.
void codes() {
  const CUstream stream = new_stream();
  CUdeviceptr block = get(kBytes, stream), plain = 0;
  finish(stream);
  SAY(cuMemFreeAsync(block + 512, stream));
  SAY(cuMemFreeAsync(0x1000, stream));
  SAY(cuMemFreeAsync(block, stream));
  finish(stream);
  SAY(cuMemFreeAsync(block, stream));
  SAY(cuMemFreeAsync(block, nullptr));
  SAY(cuMemFree(block));
  say_range(block, block);
  block = get(kBytes - 3 * kMiB, stream);
  say_range(block, block);
  say_range(block + 5 * kMiB - 1, block);
  SAY(cuMemFree(block));
  SAY(cuMemFree(block));
  SAY(cuMemFreeAsync(block, stream));
  SAY(cuMemAlloc(&plain, kBytes));
  SAY(cuMemFreeAsync(plain, stream));
  SAY(cuStreamSynchronize(stream));
  SAY(cuMemAllocAsync(&block, 0, stream));
  SAY(cuMemAllocAsync(nullptr, kBytes, stream));
  block = get(kBytes, stream);
  finish(stream);
  SAY(cuCtxSetCurrent(nullptr));
  SAY(cuMemFreeAsync(block, nullptr));
  SAY(cuMemAllocAsync(&plain, kBytes, nullptr));
  use_device(0);
  SAY(cuMemFreeAsync(block, nullptr));
}

// Handles are used again for other streams.
void streams() {
  for (int i = 0; i < 20; ++i) {
    CUstream stream = nullptr;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    put(get(kBytes, stream), stream);
    if (i % 2 == 0) finish(stream);
    cuStreamDestroy(stream);
  }
  SAY(cuCtxSynchronize());
  say_free_memory();
}

// The frees of a stream that ends during a capture are not lost.
void stream_during_a_capture() {
  const CUstream captured = new_stream(), other = new_stream();
  CUgraph graph;
  put(get(kBytes, other), other);
  finish(other);
  SAY(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuStreamDestroy(other));
  SAY(cuStreamEndCapture(captured, &graph));
  SAY(cuCtxSynchronize());
}

void contexts() {
  CUcontext own = nullptr, other = nullptr;
  SAY(cuCtxGetCurrent(&own));
  for (int i = 0; i < 3; ++i) {
    SAY(cuCtxCreate(&other, nullptr, 0, 0));
    const CUstream stream = new_stream();
    const CUdeviceptr block = get(kBytes, stream);
    put(get(kBytes, stream), stream);
    put(get(kBytes, nullptr), nullptr);
    finish(stream);
    SAY(cuCtxSetCurrent(own));
    put(get(kBytes, nullptr), nullptr);
    put(block, nullptr);  // allocated in one context, freed in the other
    SAY(cuCtxSynchronize());
    SAY(cuCtxDestroy(other));
    SAY(cuCtxSetCurrent(own));
    say_free_memory();
  }
  put(get(kBytes, nullptr), nullptr);
  SAY(cuDevicePrimaryCtxReset(0));
  use_device(0);
  say_free_memory();
  const CUstream stream = new_stream();
  put(get(kBytes, stream), stream);
  SAY(cuStreamSynchronize(stream));
  say_free_memory();
}

// What contexts that end during a capture leave serves no other one, whose default stream may be
// known by the same name, and is not lost.
void contexts_during_a_capture() {
  CUcontext own = nullptr, other = nullptr;
  SAY(cuCtxGetCurrent(&own));
  const CUstream captured = new_stream();
  for (int i = 0; i < 3; ++i) {
    CUgraph graph = nullptr;
    SAY(cuCtxCreate(&other, nullptr, 0, 0));
    put(get(kBytes, nullptr), nullptr);
    SAY(cuCtxSetCurrent(own));
    SAY(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY(cuCtxDestroy(other));
    SAY(cuStreamEndCapture(captured, &graph));
  }
  SAY(cuCtxSynchronize());
  say_free_memory();
}

void pools() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  const CUstream stream = new_stream();
  const CUmemoryPool first = current_pool();
  CUmemoryPool second = nullptr;
  SAY(cuMemPoolCreate(&second, &properties));
  const CUdeviceptr early = get(kBytes, stream);
  put(get(kBytes, stream), stream);
  finish(stream);
  say_used(first);
  SAY(cuDeviceSetMemPool(0, second));
  CUdeviceptr late = get(kBytes, stream);
  finish(stream);
  say_used(first);
  say_used(second);
  put(early, stream);  // of the first pool: not for the requests that follow
  put(get(kBytes, stream), stream);
  finish(stream);
  say_used(first);
  say_used(second);
  CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  SAY(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, first));
  put(get(kBytes, stream), stream);
  finish(stream);
  say_used(first);
  SAY(cuMemPoolTrimTo(first, 0));
  finish(stream);
  SAY(cuDeviceSetMemPool(0, second));
  put(late, stream);
  SAY(cuMemPoolDestroy(second));
  late = get(kBytes, stream);
  say_used(first);
  put(late, stream);
  finish(stream);
  say_used(first);
  say_free_memory();
}

void exported() {
  CUmemPoolPtrExportData data;
  const CUstream stream = new_stream();
  for (int i = 0; i < 3; ++i) {
    const CUdeviceptr block = get(kBytes, stream);
    SAY(cuMemPoolExportPointer(&data, block));
    put(block, stream);
  }
}

// Threads with streams of their own and one in common.
void threads() {
  CUcontext context;
  SAY(cuCtxGetCurrent(&context));
  const CUstream common = new_stream();
  std::atomic<int> failures{0};
  const auto work = [&](unsigned seed) {
    cuCtxSetCurrent(context);
    for (unsigned i = 0; i < 200; ++i) {
      CUstream own = nullptr;
      CUdeviceptr first = 0, second = 0, plain = 0;
      const auto good = [&](CUresult code) { failures += code != CUDA_SUCCESS; };
      good(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
      good(cuMemAllocAsync(&first, kMiB * (1 + (seed + i) % 4), own));
      good(cuMemAllocAsync(&second, kMiB * (1 + i % 4), common));
      good(cuMemsetD8Async(first, 1, kMiB, own));
      good(cuMemsetD8Async(second, 1, kMiB, common));
      good(cuMemFreeAsync(second, common));
      good(cuMemFreeAsync(first, own));
      if (i % 16 == 0)
        good(cuMemAlloc(&plain, 600 * kMiB) == CUDA_SUCCESS ? cuMemFree(plain) : CUDA_SUCCESS);
      if (i % 8 == 0) good(cuStreamSynchronize(common));
      if (i % 32 == 0) good(cuCtxSynchronize());
      good(cuStreamDestroy(own));
    }
  };
  std::vector<std::thread> all;
  for (unsigned i = 0; i < 4; ++i) all.emplace_back(work, i);
  for (std::thread& thread : all) thread.join();
  std::printf("failures: %d\n", failures.load());
  SAY(cuCtxSynchronize());
  say_free_memory();
}

// What the child of a fork is told, and that the parent goes on.
void forked() {
  const CUstream stream = new_stream();
  CUdeviceptr block = 0;
  put(get(kBytes, stream), stream);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child != 0) waitpid(child, nullptr, 0);
  SAY(cuMemAllocAsync(&block, kBytes, stream));
  SAY(cuMemFreeAsync(block, stream));
  SAY(cuStreamSynchronize(stream));
  std::fflush(stdout);
  if (child == 0) _exit(0);
}

// The context's work dies (SIMCUDA_LOSE names the call), and the program is told by the next one.
void dead() {
  CUstream stream = new_stream();
  CUdeviceptr block = 0, cached[2] = {get(kBytes, nullptr), get(kBytes, stream)};
  const CUdeviceptr held[2] = {get(kMiB, nullptr), get(kMiB, stream)};
  put(cached[0], nullptr);
  put(cached[1], stream);
  SAY(cuCtxSynchronize());
  put(cached[0] = get(kBytes, nullptr), nullptr);
  put(cached[1] = get(kBytes, stream), stream);
  SAY(cuMemsetD8(held[0], 1, 1));
  size_t free_bytes = 0;
  SAY(cuMemGetInfo(&free_bytes, nullptr));
  SAY(cuMemAllocAsync(&block, kBytes, nullptr));
  SAY(cuMemAllocAsync(&block, kBytes, stream));
  SAY(cuMemFreeAsync(held[0], nullptr));
  SAY(cuMemFreeAsync(held[1], stream));
  SAY(cuMemFree(held[1]));
  SAY(cuMemFree(cached[0]));
  SAY(cuMemFreeAsync(cached[1], stream));
  SAY(cuDevicePrimaryCtxReset(0));
  use_device(0);
  stream = new_stream();
  put(get(kBytes, stream), stream);
  SAY(cuStreamSynchronize(stream));
}

// Whatever fails once: no block is lost, and nothing is said that the driver did not say.
void stumble(bool tell) {
  const CUstream kept = new_stream();
  int failures = 0;
  const auto good = [&](CUresult code) {
    failures += code != CUDA_SUCCESS;
    return code == CUDA_SUCCESS;
  };
  for (int i = 0; i < 12; ++i) {
    CUstream stream = kept;
    if (i % 3 == 0) good(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr blocks[3] = {};
    for (CUdeviceptr& block : blocks) {
      while (!good(cuMemAllocAsync(&block, kBytes, stream))) {
      }
    }
    for (const CUdeviceptr block : blocks) {
      while (!good(cuMemFreeAsync(block, stream))) {
      }
    }
    if (i % 4 == 1) good(cuStreamSynchronize(stream));
    if (stream != kept) good(cuStreamDestroy(stream));
  }
  SAY(cuCtxSynchronize());
  SAY(cuCtxSynchronize());
  finish(kept);
  say_free_memory();
  if (tell) std::printf("failures: %d\n", failures);
}

}  // namespace

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  const auto is = [what](const char* name) { return std::strcmp(what, name) == 0; };
  use_device(0);
  if (is("codes")) codes();
  if (is("streams")) streams();
  if (is("stream-during-a-capture")) stream_during_a_capture();
  if (is("contexts")) contexts();
  if (is("contexts-during-a-capture")) contexts_during_a_capture();
  if (is("pools")) pools();
  if (is("exported")) exported();
  if (is("threads")) threads();
  if (is("forked")) forked();
  if (is("dead")) dead();
  if (is("stumble")) stumble(true);
  if (is("stumble-tolerant")) stumble(false);
  return 0;
}
