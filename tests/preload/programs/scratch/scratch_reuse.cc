// SPDX-License-Identifier: Apache-2.0
// The scratch cache: which block serves which request, on which stream and when.
// Stream-ordered blocks freed and asked for again; what a cache in between does with them shows in
// the driver's calls only. The argument chooses.

#include <cstring>
#include <functional>
#include <thread>

#include "scratch_blocks.h"

// What cuda.h calls the same functions under per-thread default streams.
extern "C" CUresult cuMemAllocAsync_ptsz(CUdeviceptr* block, size_t bytes, CUstream stream);
extern "C" CUresult cuMemFreeAsync_ptsz(CUdeviceptr block, CUstream stream);

namespace {

constexpr size_t kBytes = 4 * kMiB;

void again_and_again(CUstream stream) {
  for (int i = 0; i < 100; ++i) put(get(kBytes, stream), stream);
}

void one_stream() {
  const CUstream stream = new_stream();
  again_and_again(stream);
  SAY(cuStreamSynchronize(stream));
  say_free_memory();
}

// Work on a block is still pending when it is handed out again; its copies must see each value.
void in_order() {
  constexpr int kRounds = 50;
  const CUstream first = new_stream(), second = new_stream();
  CUevent event;
  CUdeviceptr kept = 0;
  unsigned char seen[kRounds];
  SAY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  SAY(cuMemAlloc(&kept, kRounds));
  for (int i = 0; i < kRounds; ++i) {
    const CUdeviceptr block = get(kBytes - 1000 * static_cast<size_t>(i), first);
    cuEventRecord(event, first);
    cuStreamWaitEvent(second, event, 0);
    cuMemsetD8Async(block, static_cast<unsigned char>(i), kBytes / 2, second);
    cuMemcpyDtoDAsync(kept + static_cast<unsigned>(i), block, 1, second);
    cuEventRecord(event, second);
    cuStreamWaitEvent(first, event, 0);
    put(block, first);
  }
  SAY(cuCtxSynchronize());
  SAY(cuMemcpyDtoH(seen, kept, kRounds));
  int wrong = 0;
  for (int i = 0; i < kRounds; ++i) wrong += seen[i] != i;
  std::printf("wrong: %d\n", wrong);
}

// 8 MiB serve 4 and not 3 with a factor of 2; of 6 and 8 the smaller one serves 5.
void sizes() {
  const CUstream stream = new_stream();
  put(get(8 * kMiB, stream), stream);
  put(get(4 * kMiB, stream), stream);
  const CUdeviceptr small = get(3 * kMiB, stream), middle = get(6 * kMiB, stream);
  put(middle, stream);
  const CUdeviceptr five = get(5 * kMiB, stream);
  const CUdeviceptr eight = get(8 * kMiB, stream);
  for (const CUdeviceptr block : {small, five, eight}) put(block, stream);
}

void three_at_once() {
  const CUstream stream = new_stream();
  for (int i = 0; i < 2; ++i) {
    CUdeviceptr blocks[3];
    for (CUdeviceptr& block : blocks) block = get(6 * kMiB, stream);
    for (const CUdeviceptr block : blocks) put(block, stream);
  }
  finish(stream);
  say_free_memory();
}

void two_streams() {
  const CUstream a = new_stream(), b = new_stream();
  const CUdeviceptr x = get(kBytes, a);
  put(x, a);
  const CUdeviceptr y = get(kBytes, b);  // not the one freed on a
  const CUdeviceptr z = get(kBytes, a);
  finish(a);
  put(y, b);
  put(z, b);  // for b now
  const CUdeviceptr p = get(kBytes, b), q = get(kBytes, b);
  put(p, b);
  put(q, b);
}

void default_stream() {
  again_and_again(nullptr);
  again_and_again(CU_STREAM_LEGACY);
}

// One handle for as many streams as there are threads.
void per_thread() {
  CUcontext context;
  SAY(cuCtxGetCurrent(&context));
  const auto work = [=] {
    cuCtxSetCurrent(context);
    for (int i = 0; i < 10; ++i) {
      CUdeviceptr block = 0;
      cuMemAllocAsync_ptsz(&block, kBytes, nullptr);
      cuMemsetD8Async(block, 1, kBytes, CU_STREAM_PER_THREAD);
      cuMemFreeAsync_ptsz(block, nullptr);
      put(get(kBytes, CU_STREAM_PER_THREAD), CU_STREAM_PER_THREAD);
    }
  };
  work();
  std::thread(work).join();
}

// The same without an end to the work in between, and with one.
void pending_and_done() {
  const CUstream stream = new_stream();
  put(get(kBytes, stream), stream);
  put(get(kBytes, stream), stream);
  finish(stream);
  put(get(kBytes, stream), stream);
}

// A block that is clean serves, and a smaller one that is not stays: it becomes clean in the same
// request.
void larger_one_clean() {
  const CUstream stream = new_stream();
  const CUdeviceptr small = get(2 * kMiB, stream), large = get(3 * kMiB, stream);
  const CUdeviceptr other = get(8 * kMiB, stream);
  put(large, stream);
  put(other, stream);
  finish(stream);
  put(get(8 * kMiB, stream), stream);
  put(small, stream);
  finish(stream);
  put(get(2 * kMiB, stream), stream);
  SAY(cuCtxSynchronize());
  say_free_memory();
}

void synchronised(const std::function<void(CUstream)>& synchronise) {
  const CUstream stream = new_stream();
  for (int i = 0; i < 10; ++i) {
    put(get(kBytes, stream), stream);
    synchronise(stream);
    say_free_memory();
  }
}

void wait_for_default_stream(CUstream stream) {
  put(get(kBytes, nullptr), nullptr);
  finish(stream);
  cuStreamSynchronize(nullptr);
}

void wait_for_event(CUstream stream) {
  CUevent event;
  cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  cuEventRecord(event, stream);
  cuEventSynchronize(event);
  cuEventDestroy(event);
}

void from_a_pool() {
  const CUstream stream = new_stream();
  const CUmemoryPool pool = current_pool();
  for (int i = 0; i < 10; ++i) {
    CUdeviceptr block = 0;
    if (cuMemAllocFromPoolAsync(&block, kBytes, pool, stream) != CUDA_SUCCESS) std::puts("none");
    put(block, stream);
  }
}

void allocate_during(CUstream captured, CUstream other, CUstreamCaptureMode mode) {
  CUdeviceptr block = 0;
  CUgraph graph = nullptr;
  SAY(cuStreamBeginCapture(captured, mode));
  SAY(cuMemAllocAsync(&block, kBytes, other));
  SAY(cuMemFreeAsync(block, other));
  SAY(cuStreamEndCapture(captured, &graph));
  if (graph != nullptr) SAY(cuGraphDestroy(graph));
}

// What another stream does during a capture is the driver's to allow, whatever is cached, and what
// the stream that captures does is the graph's.
void during_a_capture() {
  const CUstream captured = new_stream(), other = new_stream();
  CUdeviceptr block = 0;
  CUgraph graph = nullptr;
  put(get(kBytes, captured), captured);
  put(get(kBytes, other), other);
  finish(captured);
  allocate_during(captured, other, CU_STREAM_CAPTURE_MODE_GLOBAL);
  allocate_during(captured, other, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  allocate_during(captured, other, CU_STREAM_CAPTURE_MODE_RELAXED);
  again_and_again(captured);
  again_and_again(other);
  SAY(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
  cuMemAllocAsync(&block, kBytes, captured);
  SAY(cuStreamEndCapture(captured, &graph));
}

}  // namespace

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  const auto is = [what](const char* name) { return std::strcmp(what, name) == 0; };
  use_device(0);
  if (is("one-stream")) one_stream();
  if (is("in-order")) in_order();
  if (is("sizes")) sizes();
  if (is("three-at-once")) three_at_once();
  if (is("two-streams")) two_streams();
  if (is("default-stream")) default_stream();
  if (is("per-thread")) per_thread();
  if (is("pending-and-done")) pending_and_done();
  if (is("larger-one-clean")) larger_one_clean();
  if (is("stream-synchronised")) synchronised(cuStreamSynchronize);
  if (is("context-synchronised")) synchronised([](CUstream) { cuCtxSynchronize(); });
  if (is("default-synchronised")) synchronised(wait_for_default_stream);
  if (is("event-synchronised")) synchronised(wait_for_event);
  if (is("from-a-pool")) from_a_pool();
  if (is("during-a-capture")) during_a_capture();
  return 0;
}
