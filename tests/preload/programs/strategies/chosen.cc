// SPDX-License-Identifier: Apache-2.0
// CISTERN_ONLY_SIZES and CISTERN_POOL_FIRST: exactly which requests the driver gets.
// Requests of known sizes, several times over. With settings that choose which of them are pooled
// the expectations tell from the trace which ones the driver got; the program sees no difference.
//
//   chosen sizes      each size, freed and synchronised, three rounds
//   chosen threads    four threads, each its own blocks
//   chosen held       twenty blocks at once
//   chosen short      the device is nearly full: nothing the pool keeps is in the way
//   chosen captures   requests and frees while another stream captures
//   chosen captures-short   the same when the device is nearly full

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "../driver_codes.h"

namespace {

constexpr size_t kSizes[] = {4095,         4096,     4097,         100000,          100001,
                             2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 1, 5 * kMiB + 4096, 8 * kMiB};

CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr block = 0;
  if (cuMemAlloc(&block, bytes) != CUDA_SUCCESS) std::printf("%zu bytes refused\n", bytes);
  return block;
}

// What the program is told of a block does not depend on where it comes from.
int told_wrongly(CUdeviceptr block, size_t bytes) {
  CUdeviceptr base = 0;
  size_t size = 0, free_before = 0, total = 0;
  int wrong = cuMemGetAddressRange(&base, &size, block + bytes - 1) != CUDA_SUCCESS;
  wrong += base != block || size != bytes;
  wrong += cuMemGetInfo(&free_before, &total) != CUDA_SUCCESS;
  wrong += free_before + bytes > total;
  return wrong;
}

void take_each_size() {
  int wrong = 0, failed = 0;
  for (int round = 0; round < 3; ++round) {
    for (const size_t bytes : kSizes) {
      const CUdeviceptr block = allocate(bytes);
      wrong += told_wrongly(block, bytes);
      failed += cuMemFree(block) != CUDA_SUCCESS;
      wrong += cuMemFree(block) != CUDA_ERROR_INVALID_VALUE;
      failed += cuCtxSynchronize() != CUDA_SUCCESS;
    }
  }
  std::printf("told wrongly %d, failures %d\n", wrong, failed);
}

void take_in_threads(CUcontext context) {
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      failed += cuCtxSetCurrent(context) != CUDA_SUCCESS;
      std::vector<CUdeviceptr> blocks(50);
      for (CUdeviceptr& block : blocks) failed += cuMemAlloc(&block, 3 * kMiB) != CUDA_SUCCESS;
      for (const CUdeviceptr block : blocks) failed += cuMemFree(block) != CUDA_SUCCESS;
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("failures %d\n", failed.load());
}

void take_many() {
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(allocate(3 * kMiB));
  for (const CUdeviceptr block : blocks) SAY(cuMemFree(block));
}

// With 64 MiB in all, of which small blocks hold a little.
void take_when_short() {
  std::vector<CUdeviceptr> pooled;
  for (int i = 0; i < 6; ++i) pooled.push_back(allocate(8 * kMiB));
  const CUdeviceptr small = allocate(4096);
  for (const CUdeviceptr block : pooled) SAY(cuMemFree(block));
  CUdeviceptr large = 0, other = 0;
  SAY(cuMemAlloc(&large, 50 * kMiB));
  SAY(cuMemAlloc(&other, 20 * kMiB));
  SAY(cuMemFree(large));
  SAY(cuMemAlloc(&other, 20 * kMiB));
  SAY(cuMemFree(other));
  SAY(cuMemFree(small));
}

void take_in_a_capture() {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr before = allocate(8 * kMiB), written = allocate(4096);
  SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuMemsetD8Async(written, 1, 4096, stream));
  const CUdeviceptr during = allocate(8 * kMiB);
  SAY(cuMemFree(before));
  SAY(cuMemFree(during));
  SAY(cuStreamEndCapture(stream, &graph));
  SAY(cuGraphDestroy(graph));
  SAY(cuMemFree(written));
}

// With 64 MiB in all.
void take_in_a_capture_when_short() {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr live = allocate(4 * kMiB), idle = allocate(40 * kMiB);
  SAY(cuMemFree(idle));
  SAY(cuCtxSynchronize());
  SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuMemsetD8Async(live, 1, 4096, stream));
  const CUdeviceptr during = allocate(30 * kMiB);
  SAY(cuStreamEndCapture(stream, &graph));
  SAY(cuGraphDestroy(graph));
  SAY(cuMemFree(during));
  SAY(cuMemFree(live));
}

}  // namespace

int main(int argc, char** argv) {
  CUcontext context = use_device(0);
  const char* mode = argc > 1 ? argv[1] : "sizes";
  if (std::strcmp(mode, "sizes") == 0) take_each_size();
  if (std::strcmp(mode, "threads") == 0) take_in_threads(context);
  if (std::strcmp(mode, "held") == 0) take_many();
  if (std::strcmp(mode, "short") == 0) take_when_short();
  if (std::strcmp(mode, "captures") == 0) take_in_a_capture();
  if (std::strcmp(mode, "captures-short") == 0) take_in_a_capture_when_short();
  SAY(cuCtxSynchronize());
  return 0;
}
