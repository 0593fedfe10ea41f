// SPDX-License-Identifier: Apache-2.0
#include <regex.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "support.h"
#include "tests/catch.h"
#include "tests/sim/include/simcuda/clock.h"

namespace {

constexpr size_t kUnit = size_t{2} << 20;

// Exit code of a grandchild that runs the body.
int forked(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

// The whole line is what the pattern (POSIX extended) says.
bool matches(const std::string& line, const std::string& pattern) {
  regex_t compiled;
  if (regcomp(&compiled, ("^(" + pattern + ")$").c_str(), REG_EXTENDED | REG_NOSUB) != 0) {
    return false;
  }
  const bool found = regexec(&compiled, line.c_str(), 0, nullptr, 0) == 0;
  regfree(&compiled);
  return found;
}

}  // namespace

TEST_CASE("nothing works before cuInit but what needs no driver state") {
  REQUIRE(in_child({}, [] {
    int count = 0;
    CUdeviceptr address = 0;
    const char* name = nullptr;
    EXPECT_CODE(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_CODE(cuMemAlloc(&address, 1), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_OK(cuDriverGetVersion(&count));
    EXPECT(count == 13050);
    EXPECT_OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
    EXPECT(std::strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuMemAlloc(&address, 1), CUDA_ERROR_INVALID_CONTEXT);
  }));
}

TEST_CASE("a child forked after cuInit is not initialised and cannot become so") {
  REQUIRE(in_child({}, [] {
    start();
    const int code = forked([] {
      CUdeviceptr address = 0;
      const bool refused = cuMemAlloc(&address, 1) == CUDA_ERROR_NOT_INITIALIZED &&
                           cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                           cuMemFree(address) == CUDA_ERROR_NOT_INITIALIZED;
      return refused ? 0 : 1;
    });
    EXPECT(code == 0);
    CUdeviceptr address = 0;
    EXPECT_OK(cuMemAlloc(&address, 1));
  }));
}

TEST_CASE("a child forked before cuInit is a process like any other") {
  REQUIRE(in_child({}, [] {
    int version = 0;
    EXPECT_OK(cuDriverGetVersion(&version));
    const int code = forked([] {
      start();
      CUdeviceptr address = 0;
      return cuMemAlloc(&address, 1) == CUDA_SUCCESS ? 0 : 1;
    });
    EXPECT(code == 0);
  }));
}

TEST_CASE("a process may end with work in flight") {
  REQUIRE(in_child({{"SIMCUDA_LATENCY", "cuMemsetD8Async=10ms"}}, [] {
    test_clock_stop();  // so the work never ends
    const int code = forked([] {
      start();
      CUstream stream = nullptr;
      CUdeviceptr block = 0;
      EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      EXPECT_OK(cuMemAlloc(&block, 1 << 20));
      for (int i = 0; i < 1000; ++i) EXPECT_OK(cuMemsetD8Async(block, 1, 1 << 20, stream));
      std::exit(7);  // with destructors, unlike _exit
      return 0;
    });
    EXPECT(code == 7);
  }));
}

TEST_CASE("work waits for an event of another process, and only for what was recorded before") {
  REQUIRE(in_child({}, [] {
    int to_importer[2];
    int to_exporter[2];
    EXPECT(pipe(to_importer) == 0 && pipe(to_exporter) == 0);
    const pid_t importer = fork();
    if (importer == 0) {
      const CUcontext context = start();
      CUipcEventHandle handle;
      CUstream stream = nullptr;
      CUevent event = nullptr, own = nullptr;
      char go = 0;
      bool right = context != nullptr && read(to_importer[0], &handle, sizeof handle) == 64;
      right = right && cuIpcOpenEventHandle(&event, handle) == CUDA_SUCCESS;
      right = right && cuIpcGetEventHandle(&handle, event) == CUDA_ERROR_INVALID_HANDLE;
      right = right && cuEventQuery(event) == CUDA_ERROR_NOT_READY;
      right = right && cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
      right = right && cuEventCreate(&own, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
      right = right && cuStreamWaitEvent(stream, event, 0) == CUDA_SUCCESS;
      right = right && cuEventRecord(own, stream) == CUDA_SUCCESS;
      right = right && cuEventQuery(own) == CUDA_ERROR_NOT_READY;
      right = right && write(to_exporter[1], "x", 1) == 1 && read(to_importer[0], &go, 1) == 1;
      right = right && cuEventSynchronize(own) == CUDA_SUCCESS;
      right = right && cuEventSynchronize(event) == CUDA_SUCCESS;
      right = right && cuEventQuery(event) == CUDA_SUCCESS;
      right = right && cuEventDestroy(event) == CUDA_SUCCESS;
      _exit(right ? 0 : 1);
    }
    start();
    CUevent plain = nullptr, event = nullptr, opened = nullptr;
    CUipcEventHandle handle;
    CUstream stream = nullptr;
    EXPECT_CODE(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    EXPECT_CODE(cuIpcGetEventHandle(&handle, plain), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuIpcGetEventHandle(&handle, event));
    EXPECT_CODE(cuIpcOpenEventHandle(&opened, handle), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_OK(cuEventQuery(event));  // never recorded
    static std::atomic<bool> may_end{false};
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuLaunchHostFunc(
        stream,
        [](void*) {
          while (!may_end) std::this_thread::yield();
        },
        nullptr));
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    char done = 0;
    EXPECT(write(to_importer[1], &handle, sizeof handle) == sizeof handle);
    EXPECT(read(to_exporter[0], &done, 1) == 1);
    may_end = true;
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuEventQuery(event));
    EXPECT(write(to_importer[1], "x", 1) == 1);
    int status = 0;
    EXPECT(waitpid(importer, &status, 0) == importer && status == 0);
    EXPECT_OK(cuEventDestroy(event));
  }));
}

TEST_CASE("another process opens a block by its handle and sees the same memory") {
  REQUIRE(in_child({{"SIMCUDA_LATENCY", "cuMemsetD32=50ms"}}, [] {
    int to_importer[2];
    int to_exporter[2];
    EXPECT(pipe(to_importer) == 0 && pipe(to_exporter) == 0);
    const pid_t importer = fork();
    if (importer == 0) {
      start();
      CUipcMemHandle handle;
      bool right = read(to_importer[0], &handle, sizeof handle) == sizeof handle;
      CUdeviceptr block = 0;
      uint32_t word = 0;
      right = right && cuIpcOpenMemHandle(&block, handle, 1) == CUDA_SUCCESS;
      right = right && cuMemcpyDtoH(&word, block, sizeof word) == CUDA_SUCCESS && word == 5;
      right = right && cuMemsetD32(block, 6, 1) == CUDA_SUCCESS;
      right = right && cuIpcCloseMemHandle(block) == CUDA_SUCCESS;  // waits for the fill
      right = right && cuIpcCloseMemHandle(block) == CUDA_ERROR_INVALID_VALUE;
      _exit(write(to_exporter[1], "x", 1) == 1 && right ? 0 : 1);
    }
    start();
    CUdeviceptr other = 0;
    CUdeviceptr block = 0;
    EXPECT_OK(cuMemAlloc(&other, 100));  // so that the block does not start its page
    EXPECT_OK(cuMemAlloc(&block, 1000));
    EXPECT_OK(cuMemsetD32(block, 5, 1));
    EXPECT_OK(cuCtxSynchronize());
    CUipcMemHandle handle;
    CUdeviceptr own = 0;
    char done = 0;
    EXPECT_OK(cuIpcGetMemHandle(&handle, block));
    EXPECT_CODE(cuIpcOpenMemHandle(&own, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(write(to_importer[1], &handle, sizeof handle) == sizeof handle);
    EXPECT(read(to_exporter[0], &done, 1) == 1);
    uint32_t word = 0;
    EXPECT_OK(cuMemcpyDtoH(&word, block, sizeof word));
    EXPECT(word == 6);
    int status = 0;
    EXPECT(waitpid(importer, &status, 0) == importer && status == 0);
  }));
}

TEST_CASE("opening a block of another device enables peer access to that device") {
  REQUIRE(in_child({{"SIMCUDA_DEVICES", "2"}}, [] {
    int pipe_ends[2];
    EXPECT(pipe(pipe_ends) == 0);
    const pid_t importer = fork();
    if (importer == 0) {
      const CUcontext there = start(0);
      start(1);
      CUipcMemHandle handle;
      CUdeviceptr block = 0;
      bool right = read(pipe_ends[0], &handle, sizeof handle) == sizeof handle;
      right = right && cuIpcOpenMemHandle(&block, handle, 1) == CUDA_SUCCESS;
      int ordinal = -1;
      right = right && cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                             block) == CUDA_SUCCESS;
      right = right && ordinal == 0;
      right = right && cuCtxEnablePeerAccess(there, 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
      _exit(right ? 0 : 1);
    }
    start(0);
    CUdeviceptr block = 0;
    CUipcMemHandle handle;
    EXPECT_OK(cuMemAlloc(&block, 1000));
    EXPECT_OK(cuIpcGetMemHandle(&handle, block));
    EXPECT(write(pipe_ends[1], &handle, sizeof handle) == sizeof handle);
    int status = 0;
    EXPECT(waitpid(importer, &status, 0) == importer && status == 0);
  }));
}

TEST_CASE("a block is opened with the one flag there is, and not by its own process") {
  REQUIRE(in_child({}, [] {
    start();
    CUdeviceptr block = 0, own = 0;
    CUipcMemHandle handle;
    EXPECT_OK(cuMemAlloc(&block, 1000));
    EXPECT_OK(cuIpcGetMemHandle(&handle, block));
    for (const unsigned flags : {0u, 2u, 3u, 77u}) {
      EXPECT_CODE(cuIpcOpenMemHandle(&own, handle, flags), CUDA_ERROR_INVALID_VALUE);
    }
    EXPECT_CODE(cuIpcOpenMemHandle(&own, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
  }));
}

TEST_CASE("the trace has a line for each call, in its documented form") {
  const TemporaryFile trace;
  REQUIRE(in_child({{"SIMCUDA_TRACE", trace.path()}}, [] {
    start();
    CUdeviceptr block = 0;
    EXPECT_OK(cuMemAlloc(&block, 1000));
    EXPECT_CODE(cuMemAlloc(&block, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemsetD8Async(block, 7, 1000, nullptr));
    EXPECT_OK(cuMemFree(block));
    EXPECT_OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }));
  const char* const expected[] = {
      "cuInit Flags=0 -> 0 tid=[0-9]+ stream=-",
      "cuDevicePrimaryCtxRetain pctx=0x[0-9a-f]+ dev=0 -> 0 tid=[0-9]+ stream=-",
      "cuMemAlloc_v2 dptr=0x[0-9a-f]+ bytesize=1000 -> 0 tid=[0-9]+ stream=-",
      "cuMemAlloc_v2 dptr=- bytesize=0 -> 1 tid=[0-9]+ stream=-",
      "cuMemsetD8Async dstDevice=0x[0-9a-f]+ value=7 N=1000 -> 0 tid=[0-9]+ stream=legacy",
      "cuMemFree_v2 dptr=0x[0-9a-f]+ -> 0 tid=[0-9]+ stream=-",
      "cuStreamSynchronize -> 0 tid=[0-9]+ stream=per-thread",
  };
  const auto lines = trace.lines();
  REQUIRE(lines.size() == std::size(expected));
  for (size_t i = 0; i < lines.size(); ++i) {
    INFO(lines[i]);
    CHECK(matches(lines[i], expected[i]));
  }
}

TEST_CASE("threads and forked children write whole lines into one trace") {
  const TemporaryFile trace;
  REQUIRE(in_child({{"SIMCUDA_TRACE", trace.path()}}, [] {
    const CUcontext context = start();
    std::atomic<bool> child_ended{false};
    const auto pairs = [context, &child_ended] {
      cuCtxSetCurrent(context);
      for (int i = 0; i < 200; ++i) {
        CUdeviceptr block = 0;
        cuMemAlloc(&block, 64);
        cuMemFree(block);
      }
      // To a sanitizer the child would leak a thread that had ended before.
      child_ended.wait(false);
    };
    std::thread one(pairs);
    std::thread two(pairs);
    EXPECT(forked([] {
             cuMemFree(1);
             return 0;
           }) == 0);
    child_ended = true;
    child_ended.notify_all();
    one.join();
    two.join();
  }));
  size_t pairs = 0;
  size_t from_child = 0;
  for (const std::string& line : trace.lines()) {
    INFO(line);
    CHECK(matches(line, "cu[A-Za-z0-9_]+( [A-Za-z]+=[^ ]+)* -> [0-9]+ tid=[0-9]+ stream=[^ ]+"));
    pairs += line.starts_with("cuMemAlloc_v2 ");
    from_child += line.starts_with("cuMemFree_v2 dptr=0x1 -> 3 ");
  }
  CHECK(pairs == 400);
  CHECK(from_child == 1);
}

TEST_CASE("a planted fault fails its nth use before any work") {
  REQUIRE(in_child({{"SIMCUDA_FAIL", "cuMemAlloc_v2:2=2,cuMemFree=CUDA_ERROR_UNKNOWN"}}, [] {
    start();
    size_t before = 0;
    size_t after = 0;
    CUdeviceptr block = 0;
    CUdeviceptr untouched = 0x77;
    EXPECT_OK(cuMemAlloc(&block, kUnit));
    EXPECT_OK(cuMemGetInfo(&before, nullptr));
    EXPECT_CODE(cuMemAlloc(&untouched, kUnit), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(untouched == 0x77);
    EXPECT_CODE(cuMemFree(block), CUDA_ERROR_UNKNOWN);
    EXPECT_CODE(cuMemFree(block), CUDA_ERROR_UNKNOWN);
    EXPECT_OK(cuMemGetInfo(&after, nullptr));
    EXPECT(before == after);
    EXPECT_OK(cuMemAlloc(&block, kUnit));
  }));
}

TEST_CASE("a latency is spent in the call, or on the stream for work") {
  REQUIRE(in_child({{"SIMCUDA_LATENCY", "cuMemAlloc_v2=20ms"}}, [] {
    start();
    const auto begun = std::chrono::steady_clock::now();
    CUdeviceptr block = 0;
    EXPECT_OK(cuMemAlloc(&block, 1));
    EXPECT(std::chrono::steady_clock::now() - begun >= std::chrono::milliseconds(20));
  }));
}

TEST_CASE("a latency after its work shows the work to others before the call returns") {
  REQUIRE(in_child({{"SIMCUDA_LATENCY", "cuMemAlloc_v2:after=100000ms"}}, [] {
    start();
    size_t before = 0, meanwhile = 0;
    EXPECT_OK(cuMemGetInfo(&before, nullptr));
    CUcontext context = nullptr;
    EXPECT_OK(cuCtxGetCurrent(&context));
    std::thread([context] {
      CUdeviceptr block = 0;
      EXPECT_OK(cuCtxSetCurrent(context));
      EXPECT_OK(cuMemAlloc(&block, kUnit));
      EXPECT(false);  // the process ends before
    }).detach();
    do {
      EXPECT_OK(cuMemGetInfo(&meanwhile, nullptr));
    } while (meanwhile == before);
  }));
}

TEST_CASE("a setting that is not understood keeps the driver from starting") {
  const Environment wrong[] = {{{"SIMCUDA_DEVICES", "two"}},
                               {{"SIMCUDA_MEMORY_MB", "0"}},
                               {{"SIMCUDA_TRACE", "/no/such/folder/trace"}},
                               {{"SIMCUDA_FAIL", "cuMemAlloc_v2"}},
                               {{"SIMCUDA_FAIL", "cuNoSuchCall=2"}},
                               {{"SIMCUDA_LATENCY", "cuMemAlloc_v2=20"}},
                               {{"SIMCUDA_LATENCY", "cuMemAlloc_v2:before=20ms"}}};
  for (const Environment& environment : wrong) {
    INFO(environment.begin()->first << "=" << environment.begin()->second);
    CHECK(in_child(environment, [] {
      std::fclose(stderr);
      EXPECT_CODE(cuInit(0), CUDA_ERROR_INVALID_VALUE);
    }));
  }
}
