// SPDX-License-Identifier: Apache-2.0
// A block of another process is opened and closed whatever else goes on in the importer.
//
//   open      while a stream captures: the capture lives, and what was opened can be read after it
//   close     while a stream captures: the capture lives, and the block is open no more
//   fails     opened while a stream captures, which may fail: nothing of it stays
//   other     closed in another context than it was opened in, which still works on it
//   over      closed after the end of the context that it was opened in
//   told      what is told of it while it is open
//   waits     closed while its own context works on it
//
// With "off" as a second word, the importer has no pools; IPC_FAIL is its SIMCUDA_FAIL.

#include <atomic>

#include "../watch_time.h"
#include "processes.h"

namespace {

constexpr size_t kBytes = 5 * kMiB;

struct Order {
  CUipcMemHandle handle;
};

std::atomic<bool> g_waited_for{false};
std::atomic<int> g_done{0};

// Work that goes on until the close of its block waits for it.
void CUDA_CB slow(void*) {
  while (!g_waited_for) usleep(100);
  g_done = 1;
}

CUdeviceptr opened(const Order& order) {
  CUdeviceptr block = 0;
  SAY(cuIpcOpenMemHandle(&block, order.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  return block;
}

void read(CUdeviceptr block) {
  unsigned holds = 0;
  const CUresult code = cuMemcpyDtoH(&holds, block + kBytes - 4, 4);
  std::printf("read: %d, holds %u\n", code, holds);
}

CUstream stream_of_its_own() {
  CUstream stream = nullptr;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

// With `doing` in it.
template <typename Doing>
void capture(Doing doing) {
  CUstream stream = stream_of_its_own();
  CUgraph graph = nullptr;
  SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  doing();
  CUstreamCaptureStatus status;
  SAY(cuStreamIsCapturing(stream, &status));
  std::printf("captures still: %d\n", status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  SAY(cuStreamEndCapture(stream, &graph));
  if (graph != nullptr) SAY(cuGraphDestroy(graph));
  SAY(cuStreamDestroy(stream));
}

void open_in_capture(const Order& order) {
  CUdeviceptr block = 0;
  capture([&] { block = opened(order); });
  read(block);
  SAY(cuIpcCloseMemHandle(block));
}

void close_in_capture(const Order& order) {
  CUdeviceptr block = opened(order);
  read(block);
  capture([&] {
    SAY(cuIpcCloseMemHandle(block));
    SAY(cuIpcCloseMemHandle(block));
  });
  block = opened(order);
  read(block);
  SAY(cuIpcCloseMemHandle(block));
}

// Whether what the other process shares is mapped here, which the simulator does by files.
bool shares_any() {
  std::FILE* maps = std::fopen("/proc/self/maps", "r");
  char line[512];
  bool any = false;
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    any |= std::strstr(line, "simcuda-physical") != nullptr;
  }
  std::fclose(maps);
  return any;
}

void fail_in_capture(const Order& order) {
  CUdeviceptr block = 0;
  CUresult code = CUDA_ERROR_UNKNOWN;
  capture(
      [&] { code = cuIpcOpenMemHandle(&block, order.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS); });
  if (code == CUDA_SUCCESS) cuIpcCloseMemHandle(block);
  std::printf("something stays: %d\n", shares_any());
}

void begin_work_on(CUdeviceptr block) {
  g_waited_for = false;
  CUstream stream = stream_of_its_own();
  SAY(cuLaunchHostFunc(stream, slow, nullptr));
  SAY(cuMemsetD8Async(block, 7, kBytes, stream));
}

void close_while_used(CUdeviceptr block) {
  const OnceThisWaits ends(&g_waited_for);
  SAY(cuIpcCloseMemHandle(block));
  std::printf("its work was done: %d\n", g_done.load());
}

void close_in_other_context(const Order& order) {
  CUcontext first = nullptr, second = nullptr;
  SAY(cuCtxGetCurrent(&first));
  const CUdeviceptr block = opened(order);
  SAY(cuCtxCreate(&second, nullptr, 0, 0));
  SAY(cuCtxSetCurrent(first));
  begin_work_on(block);
  SAY(cuCtxSetCurrent(second));
  close_while_used(block);
  SAY(cuCtxDestroy(second));
  SAY(cuCtxSetCurrent(first));
  SAY(cuCtxSynchronize());
}

// What the close answers is not asked: the driver may have taken the block away with its context.
void close_after_context(const Order& order) {
  CUcontext first = nullptr, second = nullptr;
  SAY(cuCtxGetCurrent(&first));
  SAY(cuCtxCreate(&second, nullptr, 0, 0));
  const CUdeviceptr block = opened(order);
  SAY(cuCtxDestroy(second));
  SAY(cuCtxSetCurrent(first));
  cuIpcCloseMemHandle(block);
  SAY(cuCtxSynchronize());
  std::printf("something stays: %d\n", shares_any());
}

void tell_of(CUdeviceptr block, CUcontext context) {
  CUcontext opener = nullptr, in_list = nullptr;
  unsigned long long types = 99, types_in_list = 99;
  SAY(cuPointerGetAttribute(&opener, CU_POINTER_ATTRIBUTE_CONTEXT, block + 3));
  SAY(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, block));
  CUpointer_attribute list[] = {CU_POINTER_ATTRIBUTE_CONTEXT,
                                CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
  void* data[] = {&in_list, &types_in_list};
  SAY(cuPointerGetAttributes(2, list, data, block + kBytes - 1));
  std::printf("opener: %d %d, handle types: %llu %llu\n", opener == context, in_list == context,
              types, types_in_list);
  unsigned on = 1, set = 0;
  unsigned long long first_id = 0, last_id = 1;
  SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block + 3));
  SAY(cuPointerGetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block + kBytes - 1));
  SAY(cuPointerGetAttribute(&first_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block));
  SAY(cuPointerGetAttribute(&last_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block + kBytes - 1));
  std::printf("set on all: %u, one buffer: %d\n", set, first_id == last_id);
}

int import(const Peer& owner) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  CUcontext context = use_device(0);
  const char* word = std::getenv("IPC_CAPTURES");
  Order order;
  if (!owner.hear(&order) || word == nullptr) return 1;
  const auto is = [=](const char* name) { return std::strcmp(word, name) == 0; };
  if (is("open")) open_in_capture(order);
  if (is("close")) close_in_capture(order);
  if (is("fails")) fail_in_capture(order);
  if (is("other")) close_in_other_context(order);
  if (is("over")) close_after_context(order);
  if (is("told")) tell_of(opened(order), context);
  if (is("waits")) {
    const CUdeviceptr block = opened(order);
    begin_work_on(block);
    close_while_used(block);
  }
  return 0;
}

void fail_calls() {
  if (const char* calls = std::getenv("IPC_FAIL")) setenv("SIMCUDA_FAIL", calls, 1);
}

void fail_calls_without_pools() {
  setenv("CISTERN_POOL", "off", 1);
  for (const char* name : {"FLAGS_allocator_strategy", "GE_USE_STATIC_MEMORY"}) unsetenv(name);
  fail_calls();
}

}  // namespace

int main(int count, char** words) {
  if (started_as(count, words, "import")) return import(owner_of(words));
  if (count < 2) return 1;
  setenv("IPC_CAPTURES", words[1], 1);
  const bool off = count > 2 && std::strcmp(words[2], "off") == 0;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Peer importer(words[0], "import", off ? fail_calls_without_pools : fail_calls);
  use_device(0);
  CUdeviceptr block = 0;
  Order order{};
  SAY(cuMemAlloc(&block, kBytes));
  SAY(cuMemsetD32(block, 31, kBytes / 4));
  SAY(cuCtxSynchronize());
  SAY(cuIpcGetMemHandle(&order.handle, block));
  importer.tell(order);
  std::printf("importer ended with %d\n", importer.end());
  SAY(cuMemFree(block));
  return 0;
}
