// SPDX-License-Identifier: Apache-2.0
// Captures that end in unusual ways, and frees meanwhile: memory is served as before.
// Every way to end but the usual one. What is not captured goes on meanwhile.

#include <initializer_list>
#include <thread>

#include "../driver_codes.h"

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

void begin_refused() {
  CUstream stream = begin(CU_STREAM_CAPTURE_MODE_RELAXED), idle;
  CUgraph graph = nullptr;
  SAY(cuStreamCreate(&idle, CU_STREAM_NON_BLOCKING));
  SAY(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuStreamBeginCapture(idle, static_cast<CUstreamCaptureMode>(3)));
  SAY(cuStreamEndCapture(idle, &graph));
  SAY(cuStreamDestroy(idle));
  SAY(cuStreamBeginCapture(idle, CU_STREAM_CAPTURE_MODE_RELAXED));
  // What captures already is invalidated, and its end still has to be said.
  SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuStreamEndCapture(stream, &graph));
  SAY(cuStreamEndCapture(stream, &graph));
  SAY(cuStreamDestroy(stream));
}

void invalidated() {
  CUdeviceptr block = 0;
  CUgraph graph = nullptr;
  CUstream stream = begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  SAY(cuMemAlloc(&block, 4096));
  SAY(cuCtxSynchronize());
  SAY(cuMemAlloc(&block, 4096));
  SAY(cuStreamEndCapture(stream, &graph));
  SAY(cuMemAlloc(&block, 4096));
  SAY(cuMemFree(block));
  SAY(cuStreamDestroy(stream));
}

// The thread that captures is gone: only a relaxed capture can be ended by another one.
void thread_gone(CUstreamCaptureMode mode) {
  CUcontext context;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  SAY(cuCtxGetCurrent(&context));
  std::thread([&] {
    SAY(cuCtxSetCurrent(context));
    stream = begin(mode);
  }).join();
  SAY(cuStreamEndCapture(stream, &graph));
  SAY(cuStreamDestroy(stream));
}
void thread_gone_relaxed() { thread_gone(CU_STREAM_CAPTURE_MODE_RELAXED); }
void thread_gone_local() { thread_gone(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); }

// A second stream joins the capture by an event, and either is destroyed before the end.
void joined_stream(bool destroy_origin) {
  CUstream origin = begin(CU_STREAM_CAPTURE_MODE_RELAXED), joined;
  CUevent event;
  CUgraph graph = nullptr;
  SAY(cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING));
  SAY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  SAY(cuEventRecord(event, origin));
  SAY(cuStreamWaitEvent(joined, event, 0));
  SAY(cuStreamEndCapture(joined, &graph));
  SAY(cuStreamDestroy(destroy_origin ? origin : joined));
  if (!destroy_origin) SAY(cuStreamEndCapture(origin, &graph));
  SAY(cuStreamDestroy(destroy_origin ? joined : origin));
  SAY(cuEventDestroy(event));
}
void joined_stream_gone() { joined_stream(false); }
void origin_gone() { joined_stream(true); }

// Only the device's own captures end with it.
void reset_another_device() {
  CUcontext own, other;
  SAY(cuCtxGetCurrent(&own));
  SAY(cuDevicePrimaryCtxRetain(&other, 1));
  CUstream stream = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  SAY(cuCtxSetCurrent(other));
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  SAY(cuDevicePrimaryCtxReset(1));
  SAY(cuCtxSetCurrent(own));
  end(stream);
}

// Frees and allocations of another thread while a stream captures.
void disturb(CUcontext context) {
  std::thread([&] {
    int failures = 0;
    cuCtxSetCurrent(context);
    for (int i = 0; i < 20; ++i) {
      CUdeviceptr block = 0;
      if (cuMemAlloc(&block, 4 * kMiB) != CUDA_SUCCESS) ++failures;
      if (cuMemFree(block) != CUDA_SUCCESS) ++failures;
    }
    std::printf("failures meanwhile %d\n", failures);
  }).join();
}

// A capture belongs to its stream's context, whichever is current when it begins.
void begun_with_another_context_current() {
  CUcontext own, other;
  CUstream stream, others;
  SAY(cuCtxGetCurrent(&own));
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SAY(cuCtxCreate(&other, nullptr, 0, 0));
  SAY(cuStreamCreate(&others, CU_STREAM_NON_BLOCKING));
  SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SAY(cuCtxSetCurrent(own));
  CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  SAY(cuThreadExchangeStreamCaptureMode(&relaxed));
  SAY(cuStreamBeginCapture(others, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuCtxDestroy(other));
  disturb(own);
  SAY(cuThreadExchangeStreamCaptureMode(&relaxed));
  end(stream);
}

// Memory that is known outside cannot go back now, and is not reused either.
void free_exported() {
  CUdeviceptr small = 0, large = 0, next = 0;
  const unsigned on = 1;
  SAY(cuMemAlloc(&small, 4096));
  SAY(cuMemAlloc(&large, 4 * kMiB));
  SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, small));
  SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, large));
  CUstream stream = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  SAY(cuMemFree(small));
  SAY(cuMemFree(large));
  SAY(cuMemAlloc(&next, 4096));
  SAY(cuMemFree(small + 512));
  SAY(cuMemFree(next));
  end(stream);
}

}  // namespace

int main() {
  use_device(0);
  for (const auto unusual :
       {free_async_meanwhile, end_without_a_place_for_the_graph, destroy_the_stream,
        destroy_the_context, reset_the_device, two_names_of_one_stream, begin_refused, invalidated,
        thread_gone_relaxed, thread_gone_local, joined_stream_gone, origin_gone,
        reset_another_device, begun_with_another_context_current, free_exported}) {
    unusual();
    allocate_and_free(100, 4 * kMiB);
  }
  return 0;
}
