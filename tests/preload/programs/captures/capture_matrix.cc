// SPDX-License-Identifier: Apache-2.0
// Each call about memory during a capture has the driver's code and effect on the capture.
// The calls are all that a pool answers, in each mode, from the capturing thread and another one,
// in the stream's context, another one and another device's. Afterwards memory is served as ever.

#include <initializer_list>
#include <thread>

#include "../driver_codes.h"

namespace {

constexpr size_t kSizes[] = {5000, 3 * kMiB};

// What an action works on: blocks and a stream of the context it runs in.
struct Stage {
  CUdeviceptr before;   // allocated before the capture
  CUdeviceptr inside;   // allocated by the action itself
  CUdeviceptr earlier;  // in stream order, before the capture
  CUstream ordered;
  size_t bytes;
};

struct Action {
  const char* name;
  void (*run)(Stage& stage);
};

void print(CUresult code) { std::printf(" %d", code); }

void allocate(Stage& s) { print(cuMemAlloc(&s.inside, s.bytes)); }

void free_earlier(Stage& s) {
  print(cuMemFree(s.before));
  print(cuMemFree(s.before));
}

void allocate_and_free_inside(Stage& s) {
  print(cuMemAlloc(&s.inside, s.bytes));
  print(cuMemFree(s.inside));
  print(cuMemFree(s.inside));
}

void free_ordered(Stage& s) {
  print(cuMemFreeAsync(s.before, s.ordered));
  print(cuMemFreeAsync(s.before, s.ordered));
}

void allocate_and_free_ordered(Stage& s) {
  print(cuMemAlloc(&s.inside, s.bytes));
  print(cuMemFreeAsync(s.inside, s.ordered));
}

void allocate_in_order(Stage& s) {
  print(cuMemAllocAsync(&s.inside, s.bytes, s.ordered));
  print(cuMemFreeAsync(s.inside, s.ordered));
}

void free_in_order(Stage& s) {
  print(cuMemFreeAsync(s.earlier, s.ordered));
  print(cuMemFreeAsync(s.earlier, s.ordered));
}

void free_what_is_not_there(Stage& s) {
  print(cuMemFree(s.before + 4));
  print(cuMemFree(0));
}

void ask(Stage& s) {
  CUdeviceptr start = 0;
  size_t bytes = 0, free_bytes = 0, total = 0;
  unsigned type = 0;
  print(cuMemGetAddressRange(&start, &bytes, s.before + 5));
  print(cuMemGetInfo(&free_bytes, &total));
  print(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, s.before));
  std::printf(" (%zu, %u)", bytes, type);
}

constexpr Action kActions[] = {
    {"allocate", allocate},
    {"free", free_earlier},
    {"allocate, free", allocate_and_free_inside},
    {"free ordered", free_ordered},
    {"allocate, free ordered", allocate_and_free_ordered},
    {"allocate in order", allocate_in_order},
    {"free in order", free_in_order},
    {"free nothing", free_what_is_not_there},
    {"ask", ask},
};

struct Mode {
  const char* name;
  CUstreamCaptureMode capture, thread;
};

constexpr Mode kModes[] = {
    {"global", CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL},
    {"local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL},
    {"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL},
    {"global, thread local", CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
    {"global, thread relaxed", CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED},
};

void act(const Action& action, CUcontext context, CUstreamCaptureMode mode, Stage& stage) {
  CUcontext own = nullptr;
  cuCtxGetCurrent(&own);
  cuCtxSetCurrent(context);
  cuThreadExchangeStreamCaptureMode(&mode);
  action.run(stage);
  cuThreadExchangeStreamCaptureMode(&mode);
  cuCtxSetCurrent(own);
}

void end(CUstream stream) {
  CUgraph graph = nullptr;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuStreamIsCapturing(stream, &status);
  std::printf("; status %d, end %d\n", status, cuStreamEndCapture(stream, &graph));
  if (graph != nullptr) cuGraphDestroy(graph);
}

void one(const Mode& mode, const Action& action, bool other_thread, CUcontext context,
         const char* where, size_t bytes) {
  CUcontext own = nullptr;
  CUstream stream = nullptr;
  Stage stage{0, 0, 0, nullptr, bytes};
  CUdeviceptr freed = 0;
  cuCtxGetCurrent(&own);
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  cuCtxSetCurrent(context);
  cuStreamCreate(&stage.ordered, CU_STREAM_NON_BLOCKING);
  cuMemAlloc(&stage.before, bytes);
  cuMemAllocAsync(&stage.earlier, bytes, stage.ordered);
  cuMemAllocAsync(&freed, bytes, stage.ordered);
  cuMemFreeAsync(freed, stage.ordered);
  cuCtxSetCurrent(own);
  std::printf("%s, %s, %s, %s, %zu bytes:", mode.name, action.name,
              other_thread ? "another thread" : "its thread", where, bytes);
  print(cuStreamBeginCapture(stream, mode.capture));
  if (other_thread) {
    std::thread([&] { act(action, context, mode.thread, stage); }).join();
  } else {
    act(action, context, mode.thread, stage);
  }
  end(stream);
  // What the action left, and what it did not really free.
  cuCtxSetCurrent(context);
  const CUresult before = cuMemFree(stage.before), inside = cuMemFree(stage.inside);
  const CUresult earlier = cuMemFree(stage.earlier);
  std::printf("  left: %d %d %d, synchronise %d\n", before, inside, earlier, cuCtxSynchronize());
  cuStreamDestroy(stage.ordered);
  cuCtxSetCurrent(own);
  cuStreamDestroy(stream);
}

}  // namespace

int main() {
  CUcontext own = use_device(0), second = nullptr, device = nullptr;
  SAY(cuCtxCreate(&second, nullptr, 0, 0));
  SAY(cuDevicePrimaryCtxRetain(&device, 1));
  SAY(cuCtxSetCurrent(own));
  const size_t before = free_memory();
  for (const Mode& mode : kModes) {
    for (const Action& action : kActions) {
      for (const bool other_thread : {false, true}) {
        for (const size_t bytes : kSizes) {
          one(mode, action, other_thread, own, "its context", bytes);
          one(mode, action, other_thread, second, "another context", bytes);
          one(mode, action, other_thread, device, "another device", bytes);
        }
      }
    }
  }
  allocate_and_free(1000, 4 * kMiB);
  allocate_and_free(1000, 5000);
  std::printf("memory lost: %lld\n", static_cast<long long>(before - free_memory()));
  return 0;
}
