// SPDX-License-Identifier: Apache-2.0
// A program that relies on cudaFree to synchronise: right, but wrong with CISTERN_FREE_SYNC=false.
// The program reads what the device writes once a block that has nothing to do with it was freed.
// With the driver alone that works.
//
//   relies_on_free results    how many of the results were there
//   relies_on_free abroad     the block's context is not the current one
//   relies_on_free wrong      frees that wait for nothing: twice, inside, of nothing
//   relies_on_free captures   frees while another stream captures
//   relies_on_free meanwhile  another thread begins a capture while a free waits
//   relies_on_free stubborn   a free that fails is made again
//   relies_on_free dead       the work that a free waits for dies
//   relies_on_free released   that work waits for a thread which releases the primary context, not
//   last

#include <atomic>
#include <cstring>
#include <thread>

#include "../driver_codes.h"
#include "../watch_time.h"

namespace {

constexpr size_t kSizes[] = {1000, 4 * kMiB, 300 * 1024, 9 * kMiB};
constexpr int kRounds = 8;

struct Worker {
  CUstream stream = nullptr;
  CUdeviceptr source = 0;
  unsigned* result = nullptr;

  Worker() {
    void* pinned = nullptr;
    SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SAY(cuMemAlloc(&source, sizeof *result));
    SAY(cuMemHostAlloc(&pinned, sizeof *result, CU_MEMHOSTALLOC_PORTABLE));
    result = static_cast<unsigned*>(pinned);
  }

  // Slow in the simulated device (SIMCUDA_LATENCY): certainly under way when the call returns.
  void start(unsigned value) const {
    *result = 0;
    cuMemsetD32Async(source, value, 1, stream);
    cuMemcpyDtoHAsync(result, source, sizeof *result, stream);
  }

  bool done(unsigned value) const { return *static_cast<volatile unsigned*>(result) == value; }

  void finish() const {
    SAY(cuStreamSynchronize(stream));
    SAY(cuMemFree(source));
  }
};

CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr block = 0;
  if (cuMemAlloc(&block, bytes) != CUDA_SUCCESS) std::printf("no memory\n");
  return block;
}

void read_results() {
  const Worker worker;
  int there = 0, failed = 0;
  unsigned value = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const size_t bytes : kSizes) {
      const CUdeviceptr block = allocate(bytes);
      worker.start(++value);
      failed += cuMemFree(block) != CUDA_SUCCESS;
      there += worker.done(value);
    }
  }
  const bool all = there == static_cast<int>(value);
  std::printf("results that were there: %s, frees that failed %d\n", all ? "all" : "not all",
              failed);
  worker.finish();
}

void free_abroad() {
  const Worker worker;
  CUcontext other = nullptr, current = nullptr;
  const CUdeviceptr block = allocate(4 * kMiB);
  SAY(cuCtxCreate(&other, nullptr, 0, 0));
  worker.start(1);
  SAY(cuMemFree(block));
  std::printf("there: %d\n", worker.done(1));
  SAY(cuCtxGetCurrent(&current));
  std::printf("still current: %d\n", current == other);
  SAY(cuCtxDestroy(other));
  worker.finish();
}

void free_wrongly() {
  const Worker worker;
  const CUdeviceptr small = allocate(1000), large = allocate(4 * kMiB);
  SAY(cuMemFree(large));
  SAY(cuMemFree(large));
  SAY(cuMemFree(small + 8));
  SAY(cuMemFree(large + 8));
  SAY(cuMemFree(0));
  SAY(cuMemFree(small));
  SAY(cuMemFree(small));
  worker.finish();
}

// Nobody may synchronise the context now; a free of the driver's own is allowed in this mode.
void free_in_a_capture() {
  const Worker worker;
  const CUdeviceptr small = allocate(1000), large = allocate(4 * kMiB);
  CUstream capturing = nullptr;
  CUgraph graph = nullptr;
  SAY(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
  SAY(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuMemsetD32Async(worker.source, 1, 1, capturing));
  SAY(cuMemFree(small));
  SAY(cuMemFree(large));
  SAY(cuStreamEndCapture(capturing, &graph));
  SAY(cuGraphDestroy(graph));
  worker.finish();
}

// Tells what became of it in the end alone.
void free_stubbornly() {
  for (const size_t bytes : kSizes) {
    const CUdeviceptr block = allocate(bytes);
    cuMemsetD8Async(block, 1, bytes, nullptr);
    CUresult code = cuMemFree(block);
    for (int i = 0; i < 3 && code != CUDA_SUCCESS; ++i) code = cuMemFree(block);
    std::printf("%zu bytes: in the end %d, once more %d\n", bytes, code, cuMemFree(block));
  }
}

void free_after_death() {
  const Worker worker;
  const CUdeviceptr small = allocate(1000), large = allocate(4 * kMiB);
  void* pinned = nullptr;
  SAY(cuMemHostAlloc(&pinned, 8192, 0));
  worker.start(1);
  SAY(cuMemFreeHost(pinned));
  SAY(cuMemFree(small));
  SAY(cuMemFree(large));
  SAY(cuCtxSynchronize());
  SAY(cuDevicePrimaryCtxReset(0));
}

std::atomic<bool> g_released{false};

void await_release(void*) {
  while (!g_released) std::this_thread::yield();
}

void free_while_released() {
  const Worker worker;
  const CUdeviceptr block = allocate(4 * kMiB);
  CUcontext context = nullptr;
  SAY(cuDevicePrimaryCtxRetain(&context, 0));
  SAY(cuLaunchHostFunc(worker.stream, await_release, nullptr));
  CUresult freed = CUDA_ERROR_UNKNOWN;
  std::atomic<pid_t> freer{0};
  std::thread freeing([&] {
    cuCtxSetCurrent(context);
    freer = gettid();
    freed = cuMemFree(block);
  });
  await_sleep(freer);
  SAY(cuDevicePrimaryCtxRelease(0));
  // A release that waits for the work, as the free does, hangs.
  g_released = true;
  freeing.join();
  std::printf("released, and freed: %d\n", freed);
  worker.finish();
}

// The driver's free looks for captures when it begins.
void free_while_a_capture_begins() {
  const Worker worker;
  const CUdeviceptr block = allocate(4 * kMiB);
  CUcontext context = nullptr;
  CUstream capturing = nullptr;
  CUgraph graph = nullptr;
  SAY(cuCtxGetCurrent(&context));
  SAY(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
  SAY(cuCtxSynchronize());
  SAY(cuLaunchHostFunc(worker.stream, await_release, nullptr));
  const std::atomic<pid_t> freer{gettid()};
  CUresult begun = CUDA_ERROR_UNKNOWN;
  std::thread other([&] {
    cuCtxSetCurrent(context);
    await_sleep(freer);
    begun = cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED);
    g_released = true;
  });
  SAY(cuMemFree(block));
  other.join();
  std::printf("begun: %d\n", begun);
  SAY(cuStreamEndCapture(capturing, &graph));
  SAY(cuGraphDestroy(graph));
  worker.finish();
}

}  // namespace

int main(int argc, char** argv) {
  end_if_it_hangs();
  use_device(0);
  const char* mode = argc > 1 ? argv[1] : "results";
  if (std::strcmp(mode, "results") == 0) read_results();
  if (std::strcmp(mode, "abroad") == 0) free_abroad();
  if (std::strcmp(mode, "wrong") == 0) free_wrongly();
  if (std::strcmp(mode, "captures") == 0) free_in_a_capture();
  if (std::strcmp(mode, "meanwhile") == 0) free_while_a_capture_begins();
  if (std::strcmp(mode, "stubborn") == 0) free_stubbornly();
  if (std::strcmp(mode, "dead") == 0) free_after_death();
  if (std::strcmp(mode, "released") == 0) free_while_released();
  return 0;
}
