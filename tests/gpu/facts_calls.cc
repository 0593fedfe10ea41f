// SPDX-License-Identifier: Apache-2.0
// What single calls that Cistern makes, or may make, cost and are allowed.
//
//   costs       the two calls that keep a free's order: cuCtxRecordEvent, cuStreamWaitEvent
//   captures    a wait that is pending when a capture begins; calls beside a capture
//   questions   attributes of the device; what describes the parameters of a kernel

#include <iterator>
#include <utility>
#include <vector>

#include "facts.h"

namespace {

using namespace facts;

constexpr int kCalls = 100;

// With so many streams that were used.
void tell_costs(const timed::Worker& at, RecordContext record, size_t count, CUdeviceptr words) {
  std::vector<CUstream> streams(count);
  for (CUstream& stream : streams) {
    stream = timed::new_stream();
    MUST(timed::fill_words(at.kernels, stream, words, 1, 1, 0));
  }
  const CUevent event = new_event();
  MUST(cuCtxSynchronize());
  const auto record_it = [&] { MUST(record(at.context, event)); };
  fact(each(kCalls, record_it), "costs.cuCtxRecordEvent_us.idle.streams_%zu", count);
  MUST(cuCtxSynchronize());
  timed::Held work(at.kernels, at.stream);
  fact(each(kCalls, record_it), "costs.cuCtxRecordEvent_us.busy.streams_%zu", count);
  work.end();
  MUST(cuCtxSynchronize());
  const double first_after = microseconds(record_it);
  fact(first_after, "costs.cuCtxRecordEvent_us.after_a_wait.streams_%zu", count);
  for (const CUstream stream : streams) MUST(cuStreamDestroy(stream));
  MUST(cuEventDestroy(event));
}

void costs(CUcontext context) {
  const timed::Worker at(context);
  const CUstream other = timed::new_stream();
  const CUevent event = new_event();
  const CUdeviceptr words = new_block(4096);
  const auto launch = [&] { MUST(timed::fill_words(at.kernels, other, words, 8, 1, 0)); };
  const auto wait = [&] { MUST(cuStreamWaitEvent(other, event, 0)); };
  launch();
  MUST(cuEventRecord(event, at.stream));
  MUST(cuCtxSynchronize());
  fact(each(kCalls, wait), "costs.cuStreamWaitEvent_us.done");
  timed::Held work(at.kernels, at.stream);
  MUST(cuEventRecord(event, at.stream));
  fact(each(kCalls, wait), "costs.cuStreamWaitEvent_us.pending");
  work.end();
  MUST(cuCtxSynchronize());
  fact(each(kCalls, launch), "costs.launch_us");
  MUST(cuCtxSynchronize());
  const RecordContext record = record_context();
  fact(record != nullptr, "costs.cuCtxRecordEvent.there");
  if (record == nullptr) return;
  fact(each(kCalls,
            [&] {
              MUST(record(context, event));
              wait();
              launch();
            }),
       "costs.record_wait_and_launch_us");
  MUST(cuCtxSynchronize());
  for (const size_t count : {1, 16, 128, 1024}) tell_costs(at, record, count, words);
}

constexpr std::pair<const char*, CUstreamCaptureMode> kModes[] = {
    {"global", CU_STREAM_CAPTURE_MODE_GLOBAL},
    {"thread_local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
    {"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED}};

// Captures a fill, and `beside` before it. The code of the end.
CUresult capture(
    CUstream stream, CUstreamCaptureMode mode, CUdeviceptr words,
    const std::function<void()>& beside = [] {}) {
  const CUresult began = cuStreamBeginCapture(stream, mode);
  if (began != CUDA_SUCCESS) return began;
  beside();
  static_cast<void>(cuMemsetD32Async(words, 1, 1, stream));
  CUgraph graph = nullptr;
  const CUresult ended = cuStreamEndCapture(stream, &graph);
  if (ended == CUDA_SUCCESS && graph != nullptr) MUST(cuGraphDestroy(graph));
  return ended;
}

// A wait of one thread is pending when another one captures.
void tell_pending(const timed::Worker& at, const char* name, CUdeviceptr words,
                  const std::function<CUresult()>& wait) {
  for (const auto& [mode_name, mode] : kModes) {
    const CUstream stream = timed::new_stream();
    timed::Held work(at.kernels, at.stream);
    Beside waiting(at.context, wait);
    std::this_thread::sleep_for(kHeadStart);
    const bool pending = !waiting.back();
    Beside capturing(at.context, [&, captured = mode] { return capture(stream, captured, words); });
    const bool back = capturing.back_within(kPatience);
    work.end();
    fact(pending, "pending.%s.%s.was_pending", name, mode_name);
    fact(back, "pending.%s.%s.capture_came_back", name, mode_name);
    fact(capturing.join(), "pending.%s.%s.capture_code", name, mode_name);
    fact(waiting.join(), "pending.%s.%s.wait_code", name, mode_name);
    MUST(cuCtxSynchronize());
    MUST(cuStreamDestroy(stream));
  }
}

// A wait of the stream itself, for work before the capture.
void tell_stream_wait(const timed::Worker& at, CUdeviceptr words) {
  const CUstream stream = timed::new_stream();
  const CUevent event = new_event();
  timed::Held work(at.kernels, at.stream);
  MUST(cuEventRecord(event, at.stream));
  MUST(cuStreamWaitEvent(stream, event, 0));
  fact(capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, words), "pending.stream_wait.capture_code");
  work.end();
  MUST(cuCtxSynchronize());
}

// What a call answers beside a capture, and what becomes of that.
void tell_beside(const char* name, CUdeviceptr words, const std::function<CUresult()>& call) {
  for (const auto& [mode_name, mode] : kModes) {
    const CUstream stream = timed::new_stream();
    CUresult code = CUDA_SUCCESS;
    const CUresult ended = capture(stream, mode, words, [&] { code = call(); });
    fact(code, "capture.%s.%s.code", mode_name, name);
    fact(ended, "capture.%s.%s.end_code", mode_name, name);
    MUST(cuStreamDestroy(stream));
  }
}

void captures(CUcontext context) {
  const timed::Worker at(context);
  const CUdeviceptr words = new_block(4096);
  const CUevent event = new_event(), before = new_event();
  MUST(cuEventRecord(before, at.stream));
  tell_pending(at, "cuCtxSynchronize", words, [] { return cuCtxSynchronize(); });
  tell_pending(at, "cuStreamSynchronize", words, [&] { return cuStreamSynchronize(at.stream); });
  tell_pending(at, "cuEventSynchronize", words, [&] {
    MUST(cuEventRecord(event, at.stream));
    return cuEventSynchronize(event);
  });
  CUdeviceptr blocks[std::size(kModes)], *next = blocks;
  for (CUdeviceptr& block : blocks) block = new_block(4 * kMiB);
  tell_pending(at, "cuMemFree", words, [&] { return cuMemFree(*next++); });
  tell_stream_wait(at, words);
  tell_beside("cuCtxSynchronize", words, [] { return cuCtxSynchronize(); });
  tell_beside("cuEventQuery", words, [&] { return cuEventQuery(before); });
  tell_beside("cuEventSynchronize", words, [&] { return cuEventSynchronize(before); });
  tell_beside("cuStreamWaitEvent", words, [&] { return cuStreamWaitEvent(at.stream, before, 0); });
  if (const RecordContext record = record_context()) {
    tell_beside("cuCtxRecordEvent", words, [&] { return record(context, event); });
  }
  CUdeviceptr freed[std::size(kModes)], *free_next = freed;
  for (CUdeviceptr& block : freed) block = new_block(4096);
  tell_beside("cuMemFree", words, [&] { return cuMemFree(*free_next++); });
}

void attributes() {
  CUdevice device = 0;
  MUST(cuCtxGetDevice(&device));
#define ATTRIBUTE(name) \
  { #name, CU_DEVICE_ATTRIBUTE_##name }
  constexpr std::pair<const char*, CUdevice_attribute> kAsked[] = {
      ATTRIBUTE(PAGEABLE_MEMORY_ACCESS),
      ATTRIBUTE(PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES),
      ATTRIBUTE(CONCURRENT_MANAGED_ACCESS),
      ATTRIBUTE(DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
      ATTRIBUTE(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM),
      ATTRIBUTE(HOST_NATIVE_ATOMIC_SUPPORTED),
      ATTRIBUTE(CAN_FLUSH_REMOTE_WRITES),
      ATTRIBUTE(GPU_DIRECT_RDMA_SUPPORTED),
      ATTRIBUTE(GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
      ATTRIBUTE(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)};
#undef ATTRIBUTE
  for (const auto& [name, attribute] : kAsked) {
    int value = 0;
    const CUresult code = cuDeviceGetAttribute(&value, attribute, device);
    fact(code == CUDA_SUCCESS ? value : -code, "attribute.%s", name);
  }
}

// Each parameter of a kernel, and the first that it has not.
template <typename Kernel>
void tell_parameters(const char* name, CUresult (*ask)(Kernel, size_t, size_t*, size_t*),
                     Kernel kernel) {
  for (size_t i = 0; i < 5 && ask != nullptr; ++i) {
    size_t offset = 0, bytes = 0;
    fact(ask(kernel, i, &offset, &bytes), "parameters.%s.code_%zu", name, i);
    fact(static_cast<double>(bytes), "parameters.%s.bytes_%zu", name, i);
  }
}

void questions(CUcontext context) {
  attributes();
  const timed::Kernels kernels;
  using OfFunction = CUresult (*)(CUfunction, size_t, size_t*, size_t*);
  using OfKernel = CUresult (*)(CUkernel, size_t, size_t*, size_t*);
  const auto of_function = driver_function<OfFunction>("cuFuncGetParamInfo", 12040);
  const auto of_kernel = driver_function<OfKernel>("cuKernelGetParamInfo", 12040);
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  MUST(cuLibraryLoadData(&library, timed::kImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
  MUST(cuLibraryGetKernel(&kernel, library, "_Z15slow_fill_wordsPjmjj"));
  tell_parameters("cuFuncGetParamInfo", of_function, kernels.fill);
  tell_parameters("cuKernelGetParamInfo", of_kernel, kernel);
  CUfunction in_context = nullptr;
  MUST(cuKernelGetFunction(&in_context, kernel));
  tell_parameters("cuFuncGetParamInfo_of_cuKernelGetFunction", of_function, in_context);
  // Last: a driver that takes it for another thing may end the program.
  tell_parameters("cuFuncGetParamInfo_of_CUkernel", of_function,
                  reinterpret_cast<CUfunction>(kernel));
}

constexpr Group kGroups[] = {{"costs", costs}, {"captures", captures}, {"questions", questions}};

}  // namespace

int main(int argc, char** argv) { return run(kGroups, argc, argv); }
