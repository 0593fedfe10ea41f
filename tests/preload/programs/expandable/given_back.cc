// SPDX-License-Identifier: Apache-2.0
// Contexts that end: nothing is left of the virtual memory that their pools had.
// Released, reset and destroyed, with blocks held, freed, and freed under work in flight; also
// while a stream of another context captures.

#include <algorithm>
#include <vector>

#include "../virtual_memory.h"

namespace {

// Holes between what is held, work in flight on what is freed, and requests that fit no hole. The
// work writes the end of a block: each page written takes the simulator its time.
int use_memory() {
  int failures = 0;
  const auto must = [&](CUresult code) { failures += code == CUDA_SUCCESS ? 0 : 1; };
  CUstream stream = nullptr;
  must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto write = [&](CUdeviceptr block, size_t bytes, unsigned char value) {
    const size_t end = std::min<size_t>(bytes, 65536);
    must(cuMemsetD8Async(block + bytes - end, value, end, stream));
  };
  std::vector<CUdeviceptr> blocks(24);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const size_t bytes = i % 3 == 0 ? 5000 : (i % 5 + 1) * 2 * kMiB;
    must(cuMemAlloc(&blocks[i], bytes));
    write(blocks[i], bytes, static_cast<unsigned char>(i));
  }
  for (size_t i = 0; i < blocks.size(); i += 2) must(cuMemFree(blocks[i]));
  must(cuCtxSynchronize());
  for (const size_t bytes : {12 * kMiB, 7 * kMiB, 20 * kMiB}) {
    CUdeviceptr block = 0;
    must(cuMemAlloc(&block, bytes));
    write(block, bytes, 1);
    must(cuMemFree(block));
  }
  return failures;
}

void say_used(const char* how) { std::printf("%s: %d failures\n", how, use_memory()); }

}  // namespace

int main() {
  use_device(0);
  say_used("released");
  SAY(cuDevicePrimaryCtxRelease(0));
  say_virtual_memory_left();

  use_device(0);
  say_used("reset");
  SAY(cuDevicePrimaryCtxReset(0));
  say_virtual_memory_left();

  CUcontext capturing = use_device(0), created = nullptr;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SAY(cuCtxCreate(&created, nullptr, 0, 0));
  say_used("destroyed during a capture");
  SAY(cuCtxSetCurrent(capturing));
  SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuCtxDestroy(created));
  SAY(cuStreamEndCapture(stream, &graph));
  say_virtual_memory_left();
  SAY(cuDevicePrimaryCtxRelease(0));
  SAY(cuDevicePrimaryCtxRelease(0));
  return 0;
}
