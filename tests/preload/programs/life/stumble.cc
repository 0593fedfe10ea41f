// SPDX-License-Identifier: Apache-2.0
// A driver call of ours fails once: no memory is lost.
// A program that survives failures: it counts each code it gets, keeps what could not be freed and
// tries again. At the end all memory has come back, and the stack of contexts is as it was.

#include <map>
#include <vector>

#include "../driver_codes.h"

namespace {

std::map<int, int> g_codes;

bool good(CUresult code) {
  ++g_codes[code];
  return code == CUDA_SUCCESS;
}

void retain() {
  CUcontext context;
  while (!good(cuDevicePrimaryCtxRetain(&context, 0))) {
  }
  good(cuCtxSetCurrent(context));
}

size_t free_bytes() {
  size_t bytes = 0, total;
  while (!good(cuMemGetInfo(&bytes, &total))) {
  }
  return bytes;
}

void free_all(std::vector<CUdeviceptr>* blocks) {
  std::vector<CUdeviceptr> refused;
  for (const CUdeviceptr block : *blocks) {
    if (!good(cuMemFree(block))) refused.push_back(block);
  }
  *blocks = refused;
}

// Pinned memory comes and goes.
void use_pinned_memory(CUstream stream, CUdeviceptr device) {
  for (int i = 0; i < 8; ++i) {
    void* memory = nullptr;
    if (!good(cuMemHostAlloc(&memory, i % 2 != 0 ? 3000 : 6 * kMiB, 0))) continue;
    good(cuMemcpyHtoDAsync(device, memory, 100, stream));
    while (!good(cuMemFreeHost(memory))) {
    }
  }
}

// Frees with work pending, allocations that miss, idle memory beyond any budget, and a shortage.
void use_memory(CUstream stream) {
  std::vector<CUdeviceptr> blocks;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 20; ++i) {
      CUdeviceptr block = 0;
      if (!good(cuMemAlloc(&block, i % 2 != 0 ? 3000 : 6 * kMiB))) continue;
      good(cuMemsetD8Async(block, 1, 100, stream));
      blocks.push_back(block);
    }
    if (!blocks.empty()) use_pinned_memory(stream, blocks[0]);
    free_all(&blocks);
    if (round % 2 != 0) good(cuCtxSynchronize());
  }
  CUdeviceptr large = 0;
  if (good(cuMemAlloc(&large, 200 * kMiB))) blocks.push_back(large);
  for (int i = 0; i < 3 && !blocks.empty(); ++i) free_all(&blocks);
  std::printf("blocks that could not be freed: %zu\n", blocks.size());
}

// The function as a program built for per-thread default streams gets it.
void* per_thread(const char* name) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult found;
  good(cuGetProcAddress(name, &function, CUDA_VERSION,
                        CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &found));
  return function;
}

void capture(CUstream stream) {
  CUgraph graph;
  CUdeviceptr block;
  if (!good(cuMemAlloc(&block, 1000))) return;
  good(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  cuMemFreeAsync(block, stream);  // refused, whatever else fails
  if (void* free_async = per_thread("cuMemFreeAsync")) {
    reinterpret_cast<decltype(&cuMemFreeAsync)>(free_async)(block, stream);
  }
  good(cuStreamEndCapture(stream, &graph));
  good(cuGraphDestroy(graph));
  while (!good(cuMemFree(block))) {
  }
}

}  // namespace

int main() {
  good(cuInit(0));
  retain();
  CUstream stream = nullptr;
  while (!good(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))) {
  }
  const size_t before = free_bytes();
  use_memory(stream);
  capture(stream);
  good(cuCtxSynchronize());
  const size_t after = free_bytes();
  std::printf("memory lost: %d\n", before > after);
  good(cuStreamDestroy(stream));

  CUcontext popped;
  int depth = 0;
  for (int i = 0; i < 5; ++i) depth += cuCtxPopCurrent(&popped) == CUDA_SUCCESS ? 1 : 0;
  std::printf("contexts on the stack: %d\n", depth);
  good(cuDevicePrimaryCtxRelease(0));
  retain();
  allocate_and_free(100, 4096);
  std::printf("failed:");
  for (const auto& [code, count] : g_codes) {
    if (code != CUDA_SUCCESS) std::printf(" %d (%d times)", code, count);
  }
  std::printf("\n");
  return 0;
}
