// SPDX-License-Identifier: Apache-2.0
// Captures that end in every way but the usual one. What is not captured goes on meanwhile, and
// after each of them memory is served as before.

#include <initializer_list>
#include <thread>

#include "driver_codes.h"

// What cuda.h calls the same functions under per-thread default streams.
extern "C" CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode);

namespace {

CUstream begin(CUstreamCaptureMode mode) {
  CUstream stream = nullptr;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SAY(cuStreamBeginCapture(stream, mode));
  return stream;
}

void end(CUstream stream) {
  CUgraph graph = nullptr;
  SAY(cuStreamEndCapture(stream, &graph));
  SAY(cuGraphDestroy(graph));
  SAY(cuStreamDestroy(stream));
}

// A block beside the one that is freed must keep what it holds.
void free_async_meanwhile() {
  CUdeviceptr freed = 0, kept = 0;
  CUstream other;
  unsigned value = 0x12345678, seen = 0;
  SAY(cuMemAlloc(&freed, 4096));
  SAY(cuMemAlloc(&kept, 4096));
  SAY(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  SAY(cuMemcpyHtoD(kept, &value, sizeof value));
  CUstream stream = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  SAY(cuMemFreeAsync(freed, other));
  end(stream);
  SAY(cuMemcpyDtoH(&seen, kept, sizeof seen));
  std::printf("kept %x\n", seen);
  SAY(cuMemFree(kept));
  SAY(cuMemFree(freed));
  SAY(cuStreamDestroy(other));
}

void end_without_a_place_for_the_graph() {
  CUcontext context;
  CUdeviceptr block = 0;
  SAY(cuCtxGetCurrent(&context));
  SAY(cuMemAlloc(&block, 4 * kMiB));
  CUstream stream = begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  SAY(cuStreamEndCapture(stream, nullptr));
  std::thread([&] {
    CUdeviceptr own = 0;
    SAY(cuCtxSetCurrent(context));
    SAY(cuMemFree(block));
    SAY(cuMemAlloc(&own, 4 * kMiB));
    SAY(cuMemFree(own));
  }).join();
  CUstreamCaptureStatus status;
  SAY(cuStreamIsCapturing(stream, &status));
  std::printf("status %d\n", status);
  end(stream);
}

void destroy_the_stream() { SAY(cuStreamDestroy(begin(CU_STREAM_CAPTURE_MODE_RELAXED))); }

void destroy_the_context() {
  CUcontext own, other;
  SAY(cuCtxGetCurrent(&own));
  SAY(cuCtxCreate(&other, nullptr, 0, 0));
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  SAY(cuCtxDestroy(other));
  SAY(cuCtxSetCurrent(own));
}

void reset_the_device() {
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  SAY(cuDevicePrimaryCtxReset(0));
  use_device(0);
}

void two_names_of_one_stream() {
  CUgraph graph = nullptr;
  SAY(cuStreamBeginCapture_v2_ptsz(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
  SAY(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  use_device(0);
  for (const auto unusual :
       {free_async_meanwhile, end_without_a_place_for_the_graph, destroy_the_stream,
        destroy_the_context, reset_the_device, two_names_of_one_stream}) {
    unusual();
    allocate_and_free(100, 4 * kMiB);
  }
  return 0;
}
