// SPDX-License-Identifier: Apache-2.0
// Captures in a loop on several threads, frees and wrong ends on others: none becomes invalid.
// The captures are on streams of their own and on the per-thread default one; some end in clumsy
// ways.

#include <atomic>
#include <initializer_list>
#include <thread>
#include <vector>

#include "../driver_codes.h"

namespace {

constexpr int kRounds = 300;

CUcontext g_context;
std::atomic<int> g_capturing{0}, g_invalid{0}, g_failures{0};

// Another thread's end of its own default stream, which has the same name as ours.
void capture(CUstream stream, CUstreamCaptureMode mode, CUdeviceptr scratch) {
  CUgraph graph = nullptr;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (cuStreamBeginCapture(stream, mode) != CUDA_SUCCESS) ++g_failures;
  for (unsigned i = 0; i < 5; ++i) {
    if (cuMemsetD32Async(scratch, i, 100, stream) != CUDA_SUCCESS) ++g_invalid;
    std::this_thread::yield();
  }
  if (cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
      status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    ++g_invalid;
  }
  if (cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS) ++g_invalid;
  if (graph != nullptr) cuGraphDestroy(graph);
}

void capture_in_a_loop(CUstreamCaptureMode mode, bool default_stream) {
  CUstream stream = CU_STREAM_PER_THREAD;
  CUdeviceptr scratch = 0;
  if (!default_stream) cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  cuMemAlloc(&scratch, 400);
  for (int i = 0; i < kRounds; ++i) capture(stream, mode, scratch);
  cuMemFree(scratch);
  if (!default_stream) cuStreamDestroy(stream);
  --g_capturing;
}

// Allocates and frees; ends captures that it does not have, on a stream of the same name as that of
// others.
void disturb(size_t bytes) {
  unsigned i = 0;
  do {
    CUdeviceptr blocks[4] = {};
    CUgraph graph = nullptr;
    for (CUdeviceptr& block : blocks) {
      if (cuMemAlloc(&block, bytes + 4096 * (i++ % 7)) != CUDA_SUCCESS) ++g_failures;
    }
    if (cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph) != CUDA_ERROR_ILLEGAL_STATE) ++g_failures;
    for (const CUdeviceptr block : blocks) {
      if (cuMemFree(block) != CUDA_SUCCESS) ++g_failures;
    }
  } while (g_capturing != 0);
}

}  // namespace

int main() {
  g_context = use_device(0);
  g_capturing = 4;
  std::vector<std::thread> threads;
  const auto start = [&](auto body) {
    threads.emplace_back([body] {
      cuCtxSetCurrent(g_context);
      body();
    });
  };
  for (const bool default_stream : {false, true}) {
    start([=] { capture_in_a_loop(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, default_stream); });
    start([=] { capture_in_a_loop(CU_STREAM_CAPTURE_MODE_RELAXED, default_stream); });
  }
  start([] { disturb(700); });
  start([] { disturb(2 * kMiB); });
  for (std::thread& thread : threads) thread.join();
  std::printf("invalid captures %d, failures %d\n", g_invalid.load(), g_failures.load());
  allocate_and_free(100, 4 * kMiB);
  return 0;
}
