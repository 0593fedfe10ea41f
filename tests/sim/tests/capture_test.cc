// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <thread>

#include "support.h"
#include "tests/catch.h"

namespace {

constexpr size_t kWords = 100;

CUevent make_event() {
  CUevent event = nullptr;
  EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  return event;
}

CUdeviceptr words() {
  CUdeviceptr address = 0;
  EXPECT_OK(cuMemAlloc(&address, kWords * sizeof(uint32_t)));
  return address;
}

CUstreamCaptureStatus status_of(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_OK(cuStreamIsCapturing(stream, &status));
  return status;
}

// A capture is under way; `forbidden` is done; the capture ends with `code`.
void expect_capture_ends(CUstreamCaptureMode mode, const std::function<void(CUstream)>& forbidden,
                         CUresult code) {
  const CUstream stream = new_stream(CU_STREAM_DEFAULT);
  CUgraph graph = nullptr;
  EXPECT_OK(cuStreamBeginCapture(stream, mode));
  forbidden(stream);
  EXPECT_CODE(cuStreamEndCapture(stream, &graph), code);
  EXPECT((graph == nullptr) == (code != CUDA_SUCCESS));
  EXPECT(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
}

constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr auto kThread = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
constexpr auto kInvalidated = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

void forbidden_allocation(CUresult code) {
  CUdeviceptr address = 0;
  EXPECT_CODE(cuMemAlloc(&address, 16), code);
}

// All stream-ordered calls, on a stream that does not capture.
void stream_ordered_elsewhere(CUresult code) {
  static const CUstream other = new_stream();
  CUmemoryPool pool = nullptr;
  CUdeviceptr block = 0;
  EXPECT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
  CUstreamCaptureMode mode = kRelaxed;
  EXPECT_OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_OK(cuMemAllocAsync(&block, 16, other));
  EXPECT_OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_CODE(cuMemFreeAsync(block, other), code);
  EXPECT_CODE(cuMemAllocAsync(&block, 16, other), code);
  EXPECT_CODE(cuMemAllocFromPoolAsync(&block, 16, pool, other), code);
}

}  // namespace

TEST_CASE("captured work does not run until its graph is launched, then every time") {
  REQUIRE(in_child({}, [] {
    start();
    const CUstream stream = new_stream();
    const CUdeviceptr from = words();
    const CUdeviceptr to = words();
    EXPECT_OK(cuMemsetD32(to, 0, kWords));
    EXPECT_OK(cuStreamBeginCapture(stream, kGlobal));
    EXPECT_OK(cuMemsetD32Async(from, 9, kWords, stream));
    EXPECT_OK(cuMemcpyDtoDAsync(to, from, kWords * sizeof(uint32_t), stream));
    CUgraph graph = nullptr;
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
    EXPECT(word_at(to) == 0);
    size_t nodes = 0;
    EXPECT_OK(cuGraphGetNodes(graph, nullptr, &nodes));
    EXPECT(nodes == 2);
    CUgraphExec exec = nullptr;
    EXPECT_OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT_OK(cuGraphDestroy(graph));
    for (int i = 0; i < 2; ++i) {
      EXPECT_OK(cuMemsetD32(to, 0, kWords));
      EXPECT_OK(cuStreamSynchronize(nullptr));
      EXPECT_OK(cuGraphLaunch(exec, stream));
      EXPECT_OK(cuStreamSynchronize(stream));
      EXPECT(word_at(to) == 9);
    }
    EXPECT_OK(cuGraphExecDestroy(exec));
    EXPECT_CODE(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
  }));
}

TEST_CASE("an unsafe call invalidates the capture of its own thread unless that is relaxed") {
  REQUIRE(in_child({}, [] {
    start();
    const auto allocate = [](CUstream) {
      forbidden_allocation(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    };
    const auto allowed = [](CUstream) { forbidden_allocation(CUDA_SUCCESS); };
    expect_capture_ends(kGlobal, allocate, kInvalidated);
    expect_capture_ends(kThread, allocate, kInvalidated);
    expect_capture_ends(kRelaxed, allowed, CUDA_SUCCESS);
  }));
}

TEST_CASE("an unsafe call in another thread meets only global captures, unless it is relaxed") {
  REQUIRE(in_child({}, [] {
    const CUcontext context = start();
    const auto elsewhere = [context](CUstreamCaptureMode own_mode, CUresult code) {
      return [=](CUstream) {
        std::thread([=] {
          CUstreamCaptureMode mode = own_mode;
          EXPECT_OK(cuThreadExchangeStreamCaptureMode(&mode));
          EXPECT(mode == kGlobal);
          EXPECT_OK(cuCtxSetCurrent(context));
          forbidden_allocation(code);
        }).join();
      };
    };
    constexpr auto kRefused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    expect_capture_ends(kGlobal, elsewhere(kGlobal, kRefused), kInvalidated);
    expect_capture_ends(kGlobal, elsewhere(kThread, CUDA_SUCCESS), CUDA_SUCCESS);
    expect_capture_ends(kGlobal, elsewhere(kRelaxed, CUDA_SUCCESS), CUDA_SUCCESS);
    expect_capture_ends(kThread, elsewhere(kGlobal, CUDA_SUCCESS), CUDA_SUCCESS);
  }));
}

TEST_CASE("stream-ordered memory on another stream is as unsafe beside a capture") {
  REQUIRE(in_child({}, [] {
    const CUcontext context = start();
    constexpr auto kRefused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    const auto here = [](CUresult code) {
      return [code](CUstream) { stream_ordered_elsewhere(code); };
    };
    const auto in_another_thread = [context](CUresult code) {
      return [=](CUstream) {
        std::thread([=] {
          EXPECT_OK(cuCtxSetCurrent(context));
          stream_ordered_elsewhere(code);
        }).join();
      };
    };
    expect_capture_ends(kGlobal, here(kRefused), kInvalidated);
    expect_capture_ends(kThread, here(kRefused), kInvalidated);
    expect_capture_ends(kRelaxed, here(CUDA_SUCCESS), CUDA_SUCCESS);
    expect_capture_ends(kGlobal, in_another_thread(kRefused), kInvalidated);
    expect_capture_ends(kThread, in_another_thread(CUDA_SUCCESS), CUDA_SUCCESS);
    expect_capture_ends(kRelaxed, in_another_thread(CUDA_SUCCESS), CUDA_SUCCESS);
  }));
}

TEST_CASE("synchronising, querying or using what is captured invalidates in every mode") {
  REQUIRE(in_child({}, [] {
    const CUcontext context = start();
    constexpr auto kRefused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    expect_capture_ends(
        kRelaxed, [](CUstream s) { EXPECT_CODE(cuStreamSynchronize(s), kRefused); }, kInvalidated);
    expect_capture_ends(
        kRelaxed, [](CUstream s) { EXPECT_CODE(cuStreamQuery(s), kRefused); }, kInvalidated);
    expect_capture_ends(
        kRelaxed, [](CUstream) { EXPECT_CODE(cuCtxSynchronize(), kRefused); }, kInvalidated);
    expect_capture_ends(
        kRelaxed,
        [context](CUstream) { EXPECT_CODE(cuCtxRecordEvent(context, make_event()), kRefused); },
        kInvalidated);
    expect_capture_ends(
        kRelaxed,
        [](CUstream s) {
          const CUevent event = make_event();
          EXPECT_OK(cuEventRecord(event, s));
          EXPECT_CODE(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
        },
        kInvalidated);
    expect_capture_ends(
        kRelaxed,
        [block = words()](CUstream) {
          EXPECT_CODE(cuMemsetD32Async(block, 1, 1, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        },
        kInvalidated);
  }));
}

TEST_CASE("asking whether a capture is under way leaves it alone") {
  REQUIRE(in_child({}, [] {
    start();
    expect_capture_ends(
        kGlobal,
        [](CUstream stream) {
          EXPECT(status_of(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
          CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
          EXPECT_CODE(cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        },
        CUDA_SUCCESS);
  }));
}

TEST_CASE("a stream joins a capture by an event and must be joined back") {
  REQUIRE(in_child({}, [] {
    start();
    for (const bool join_back : {true, false}) {
      const CUstream origin = new_stream();
      const CUstream side = new_stream();
      const CUdeviceptr block = words();
      const CUevent fork_event = make_event();
      const CUevent join_event = make_event();
      CUgraph graph = nullptr;
      EXPECT_OK(cuStreamBeginCapture(origin, kGlobal));
      EXPECT_OK(cuEventRecord(fork_event, origin));
      EXPECT_OK(cuStreamWaitEvent(side, fork_event, 0));
      EXPECT(status_of(side) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
      EXPECT_OK(cuMemsetD32Async(block, 1, kWords, side));
      if (join_back) {
        EXPECT_OK(cuEventRecord(join_event, side));
        EXPECT_OK(cuStreamWaitEvent(origin, join_event, 0));
      }
      EXPECT_CODE(cuStreamEndCapture(origin, &graph),
                  join_back ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
      EXPECT(status_of(side) == CU_STREAM_CAPTURE_STATUS_NONE);
    }
  }));
}

TEST_CASE("a capture is ended by its own thread and its own stream") {
  REQUIRE(in_child({}, [] {
    const CUcontext context = start();
    const CUstream stream = new_stream();
    CUgraph graph = nullptr;
    EXPECT_OK(cuStreamBeginCapture(stream, kThread));
    std::thread([&] {
      EXPECT_OK(cuCtxSetCurrent(context));
      EXPECT_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }).join();
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
    EXPECT_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
  }));
}

TEST_CASE("destroying a stream drops its capture") {
  REQUIRE(in_child({}, [] {
    start();
    const CUstream stream = new_stream();
    EXPECT_OK(cuStreamBeginCapture(stream, kGlobal));
    EXPECT_OK(cuStreamDestroy(stream));
    forbidden_allocation(CUDA_SUCCESS);
  }));
}
