// SPDX-License-Identifier: Apache-2.0
// A block is not reused early, whatever becomes of the stream that still works on it.
// Work goes on while its block is freed and blocks of the same size are allocated and used on
// another stream. The argument says what becomes of the stream that does the work meanwhile. After
// that, blocks are only ever used by streams that are waited for and destroyed.

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <initializer_list>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "../watch_time.h"

namespace {

constexpr size_t kBytes = 4 * kMiB;
constexpr size_t kTouched = 4096;

CUcontext g_context;

CUstream new_stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream stream = nullptr;
  if (cuStreamCreate(&stream, flags) != CUDA_SUCCESS) std::printf("no stream\n");
  return stream;
}

CUdeviceptr new_block() {
  CUdeviceptr block = 0;
  if (cuMemAlloc(&block, kBytes) != CUDA_SUCCESS) std::printf("no block\n");
  return block;
}

// A block whose work is given and not done; freed.
void busy(CUstream stream) {
  const CUdeviceptr block = new_block();
  if (cuMemsetD8Async(block, 1, kTouched, stream) != CUDA_SUCCESS) std::printf("no work\n");
  cuMemFree(block);
}

void use_others() {
  const CUstream late = new_stream();
  for (int i = 0; i < 3; ++i) cuMemsetD32Async(new_block(), 2, kTouched / 4, late);
  cuStreamDestroy(late);
}

template <typename Work>
void in_other_thread(Work work) {
  std::thread thread([&] {
    cuCtxSetCurrent(g_context);
    work();
  });
  thread.join();
}

// Each waits for its own stream only. What makes its block free again is up to the pool.
void rounds(int count, unsigned flags) {
  int failures = 0;
  for (int i = 0; i < count; ++i) {
    const CUdeviceptr block = new_block();
    const CUstream stream = new_stream(flags);
    failures += cuMemsetD32Async(block, 3, kTouched / 4, stream) != CUDA_SUCCESS ? 1 : 0;
    failures += cuStreamSynchronize(stream) != CUDA_SUCCESS ? 1 : 0;
    failures += cuMemFree(block) != CUDA_SUCCESS ? 1 : 0;
    failures += cuStreamDestroy(stream) != CUDA_SUCCESS ? 1 : 0;
  }
  std::printf("failures %d\n", failures);
}

void kept() { busy(new_stream()); }

void destroyed(unsigned flags) {
  const CUstream stream = new_stream(flags);
  busy(stream);
  SAY(cuStreamDestroy(stream));
}

void elsewhere() {
  CUstream stream = nullptr;
  in_other_thread([&] { stream = new_stream(); });
  busy(stream);
  in_other_thread([&] { SAY(cuStreamDestroy(stream)); });
}

// The handle soon stands for an idle stream.
void again() {
  const CUstream stream = new_stream();
  busy(stream);
  SAY(cuStreamDestroy(stream));
  std::printf("same handle %d\n", new_stream() == stream);
}

// Its context is not the current one when it goes.
void other_context() {
  CUcontext other = nullptr;
  CUcontext popped = nullptr;
  SAY(cuDevicePrimaryCtxRetain(&other, 1));
  SAY(cuCtxPushCurrent(other));
  const CUstream stream = new_stream();
  busy(stream);
  SAY(cuCtxPopCurrent(&popped));
  SAY(cuStreamDestroy(stream));
  SAY(cuCtxPushCurrent(other));
  use_others();
  SAY(cuCtxSynchronize());
  SAY(cuCtxPopCurrent(&popped));
}

// Another thread's own default stream: no handle of ours leads to it.
void per_thread() {
  in_other_thread([] { busy(CU_STREAM_PER_THREAD); });
}

void legacy() { busy(CU_STREAM_LEGACY); }

// Waiting for one stream says nothing about the others.
void another_waited_for() {
  busy(new_stream());
  SAY(cuStreamSynchronize(new_stream()));
  SAY(cuStreamSynchronize(CU_STREAM_LEGACY));
  SAY(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

// Streams come and go while a capture forbids every call that the program did not make.
void captured() {
  const CUstream capturing = new_stream(), going = new_stream();
  CUgraph graph = nullptr;
  busy(going);
  SAY(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
  const CUstream coming = new_stream();
  SAY(cuStreamDestroy(going));
  SAY(cuStreamEndCapture(capturing, &graph));
  use_others();
  SAY(cuCtxSynchronize());
  busy(coming);
}

// Work that is over once somebody says so.
std::atomic<bool> g_go{false};
void hold(void*) {
  while (!g_go) usleep(100);
}

// A stream goes during a capture while another thread already waits for the whole context, and that
// wait is over before the stream's work.
void lost_during_a_wait() {
  const CUstream held = new_stream(), capturing = new_stream(), going = new_stream();
  CUgraph graph = nullptr;
  std::atomic<pid_t> waiter{0};
  SAY(cuLaunchHostFunc(held, hold, nullptr));
  CUresult waited = CUDA_ERROR_UNKNOWN;
  std::thread waiting([&] {
    cuCtxSetCurrent(g_context);
    waiter = gettid();
    waited = cuCtxSynchronize();
  });
  await_sleep(waiter);
  const CUdeviceptr block = new_block();
  SAY(cuMemsetD8Async(block, 1, kTouched, going));
  const OnceThisWaits ends(&g_go);  // the driver waits in the free, a pool in the join
  SAY(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuMemFree(block));
  SAY(cuStreamDestroy(going));
  SAY(cuStreamEndCapture(capturing, &graph));
  SAY(cuGraphDestroy(graph));
  waiting.join();
  std::printf("waited: %d\n", waited);
  SAY(cuMemFree(new_block()));  // such a driver allows marks in frees
}

void lose_a_stream() {
  const CUstream capturing = new_stream(), going = new_stream();
  CUgraph graph = nullptr;
  SAY(cuMemsetD8Async(new_block(), 1, kTouched, going));
  SAY(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuStreamDestroy(going));
  SAY(cuStreamEndCapture(capturing, &graph));
  SAY(cuGraphDestroy(graph));
}

// Nothing that is freed after the loss becomes clean before the program synchronises, which it does
// not: memory is short again and again meanwhile.
void short_after_a_loss() {
  lose_a_stream();
  const Naps naps;
  for (int round = 0; round < 3; ++round) {
    CUdeviceptr blocks[6] = {};
    for (CUdeviceptr& block : blocks) SAY(cuMemAlloc(&block, kBytes));
    for (const CUdeviceptr block : blocks) SAY(cuMemFree(block));
  }
  std::printf("waits in vain: %d\n", !naps.few(3000));  // three times for a second
}

// The same, but another thread synchronises, which takes a while: then the request has what it
// needs.
void short_beside_a_synchronisation() {
  constexpr size_t kSmall = 256 << 10;
  const CUstream slow = new_stream();
  std::vector<CUdeviceptr> blocks;
  lose_a_stream();
  for (CUdeviceptr block; cuMemAlloc(&block, kSmall) == CUDA_SUCCESS;) blocks.push_back(block);
  // One of eight stays, so that nothing goes back to the driver.
  const auto give_back = [&](auto chosen) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (chosen(i) && cuMemFree(blocks[i]) != CUDA_SUCCESS) std::printf("not freed\n");
    }
  };
  give_back([](size_t i) { return i % 8 != 0; });
  SAY(cuLaunchHostFunc(slow, hold, nullptr));
  std::atomic<pid_t> synchroniser{0};
  std::thread synchronising([&] {
    cuCtxSetCurrent(g_context);
    synchroniser = gettid();
    cuCtxSynchronize();
  });
  await_sleep(synchroniser);
  CUdeviceptr block = 0;
  {
    const OnceThisWaits ends(&g_go);
    SAY(cuMemAlloc(&block, kSmall));
    SAY(cuMemFree(block));
  }
  synchronising.join();
  give_back([](size_t i) { return i % 8 == 0; });
}

// No work can be marked for a while, and what is free waits for some: the request has what it needs
// once marks come again, and show that the work is done.
void short_without_marks() {
  constexpr size_t kSmall = 256 << 10;
  const CUstream slow = new_stream();
  std::vector<CUdeviceptr> blocks;
  for (CUdeviceptr block; cuMemAlloc(&block, kSmall) == CUDA_SUCCESS;) blocks.push_back(block);
  SAY(cuLaunchHostFunc(slow, hold, nullptr));
  const OnceThisWaits ends(&g_go);  // the driver waits in a free, a pool in the allocation
  // One of eight stays, so that nothing goes back to the driver.
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % 8 != 0 && cuMemFree(blocks[i]) != CUDA_SUCCESS) std::printf("not freed\n");
  }
  CUdeviceptr block = 0;
  SAY(cuMemAlloc(&block, kSmall));
}

// One that was created past any preload, and is destroyed or captured here.
CUstream hidden() {
  using CreateFn = int (*)(CUstream*);
  void* plugin = dlopen("libdeepbind_user.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  const auto create =
      reinterpret_cast<CreateFn>(plugin == nullptr ? nullptr : dlsym(plugin, "plugin_stream"));
  CUstream stream = nullptr;
  std::printf("plugin creates %d\n", create == nullptr ? -1 : create(&stream));
  return stream;
}

void hidden_destroyed() { SAY(cuStreamDestroy(hidden())); }

void hidden_used() { busy(hidden()); }

void hidden_captured() {
  const CUstream stream = hidden();
  CUgraph graph = nullptr;
  SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuStreamEndCapture(stream, &graph));
}

// Whatever is destroyed is not known to be a stream.
void refused() {
  const CUstream stream = new_stream();
  SAY(cuStreamDestroy(nullptr));
  SAY(cuStreamDestroy(stream));
  SAY(cuStreamDestroy(stream));
}

void many() {
  std::vector<CUstream> streams(2100);
  for (CUstream& stream : streams) stream = new_stream();
  busy(streams.back());
  use_others();
  for (const CUstream stream : streams) cuStreamDestroy(stream);
}

// Streams are destroyed by some threads while others allocate.
void racing() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      cuCtxSetCurrent(g_context);
      for (int round = 0; round < 60; ++round) {
        const CUdeviceptr block = new_block();
        const CUstream stream = new_stream(i % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        cuMemsetD32Async(block, 4, kTouched / 4, stream);
        cuMemFree(block);
        cuStreamDestroy(stream);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  end_if_it_hangs();
  g_context = use_device(0);
  const char* part = argc > 1 ? argv[1] : "";
  const auto is = [part](const char* name) { return std::strcmp(part, name) == 0; };
  if (is("kept")) kept();
  if (is("destroyed")) destroyed(CU_STREAM_NON_BLOCKING);
  if (is("destroyed_blocking")) destroyed(CU_STREAM_DEFAULT);
  if (is("elsewhere")) elsewhere();
  if (is("again")) again();
  if (is("other_context")) other_context();
  if (is("per_thread")) per_thread();
  if (is("legacy")) legacy();
  if (is("another_waited_for")) another_waited_for();
  if (is("captured")) captured();
  if (is("lost_during_a_wait")) lost_during_a_wait();
  if (is("short_after_a_loss")) short_after_a_loss();
  if (is("short_beside_a_synchronisation")) short_beside_a_synchronisation();
  if (is("short_without_marks")) return short_without_marks(), 0;
  if (is("hidden_destroyed")) hidden_destroyed();
  if (is("hidden_captured")) hidden_captured();
  if (is("hidden_used")) hidden_used();
  if (is("refused")) refused();
  if (is("many")) many();
  if (is("racing")) racing();
  use_others();
  SAY(cuCtxSynchronize());
  for (const unsigned flags : {CU_STREAM_NON_BLOCKING, CU_STREAM_DEFAULT}) rounds(50, flags);
  std::printf("%s: done\n", part);
  return 0;
}
