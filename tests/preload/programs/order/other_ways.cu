// SPDX-License-Identifier: Apache-2.0
// The less usual ways to give work order it as the usual ones do, and what is freed after it waits.
// Launches by a configuration and cooperative ones, callbacks, events with flags, copies between
// devices, captures whose dependencies are set, graphs that keep an object; and what can be asked.

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <thread>

#include "../check.h"
#include "../kernels.cuh"

namespace {

constexpr size_t kWords = 20000;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
constexpr unsigned kDelayUs = 300;

std::atomic<int> called_back{0};
std::atomic<int> destroyed{0};

void count_callback(cudaStream_t, cudaError_t status, void* data) {
  if (status == cudaSuccess) called_back += *static_cast<int*>(data);
}

void CUDART_CB destroy(void* object) { destroyed += *static_cast<int*>(object); }

uint32_t* allocate() {
  uint32_t* words = nullptr;
  CHECK(cudaMalloc(&words, kBytes));
  return words;
}

// What words hold, and how much of it is not as slow_fill_words left it.
unsigned long long wrong_words(const uint32_t* words, uint32_t seed, cudaStream_t stream) {
  static uint32_t host[kWords];
  CHECK(cudaMemcpyAsync(host, words, kBytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  unsigned long long wrong = 0;
  for (size_t i = 0; i < kWords; ++i) wrong += host[i] != seed + i;
  return wrong;
}

// Each block is freed while a launch of this kind may still write to it.
void launches(cudaStream_t stream) {
  unsigned long long wrong = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    uint32_t* words = allocate();
    size_t count = kWords;
    uint32_t first = seed, delay = kDelayUs;
    void* args[] = {&words, &count, &first, &delay};
    const auto kernel = reinterpret_cast<const void*>(slow_fill_words);
    if (seed % 2 == 0) {
      cudaLaunchConfig_t config{};
      config.gridDim = config.blockDim = 1;
      config.stream = stream;
      CHECK(cudaLaunchKernelExC(&config, kernel, args));
    } else {
      CHECK(cudaLaunchCooperativeKernel(kernel, 1, 1, args, 0, stream));
    }
    uint32_t* copy = allocate();
    CHECK(cudaMemcpyAsync(copy, words, kBytes, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaFree(words));
    uint32_t* next = allocate();  // not the one that is still written
    CHECK(cudaMemsetAsync(next, 0xFF, kBytes, nullptr));
    wrong += wrong_words(copy, seed, stream);
    CHECK(cudaFree(next));
    CHECK(cudaFree(copy));
  }
  std::printf("launched otherwise: %llu words wrong\n", wrong);
}

void callbacks_and_events(cudaStream_t stream) {
  int one = 1;
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  uint32_t* words = allocate();
  slow_fill_words<<<1, 1, 0, stream>>>(words, kWords, 5, kDelayUs);
  for (int i = 0; i < 10; ++i) CHECK(cudaStreamAddCallback(stream, count_callback, &one, 0));
  CHECK(cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault));
  CHECK(cudaEventSynchronize(event));
  std::printf("called back %d times, %llu words wrong\n", called_back.load(),
              wrong_words(words, 5, stream));
  CHECK(cudaFree(words));
  CHECK(cudaEventDestroy(event));
}

void copies_between_devices(cudaStream_t stream) {
  unsigned long long wrong = 0;
  for (uint32_t seed = 0; seed < 10; ++seed) {
    uint32_t* here = allocate();
    CHECK(cudaSetDevice(1));
    uint32_t* there = allocate();
    CHECK(cudaSetDevice(0));
    slow_fill_words<<<1, 1, 0, stream>>>(here, kWords, seed, kDelayUs);
    CHECK(cudaMemcpyPeerAsync(there, 1, here, 0, kBytes, stream));
    CHECK(cudaFree(here));
    wrong += wrong_words(there, seed, stream);
    CHECK(cudaFree(there));
  }
  int device = -1;
  CHECK(cudaGetDevice(&device));
  std::printf("between devices: %llu words wrong, current is %d\n", wrong, device);
}

void captures(cudaStream_t stream) {
  uint32_t* words = allocate();
  cudaGraph_t graph;
  cudaStreamCaptureStatus status;
  const cudaGraphNode_t* frontier = nullptr;
  size_t count = 0;
  unsigned long long id = 0;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CHECK(cudaMemsetAsync(words, 1, kBytes / 2, stream));
  CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, nullptr, &frontier, nullptr, &count));
  cudaGraphNode_t first = frontier[0];
  std::printf("captures: status %d, id %d, depends on %zu\n", status, id != 0, count);
  CHECK(cudaStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0,
                                            cudaStreamSetCaptureDependencies));
  CHECK(cudaMemsetAsync(words + kWords / 2, 1, kBytes / 2, stream));
  CHECK(cudaStreamUpdateCaptureDependencies(stream, &first, nullptr, 1,
                                            cudaStreamAddCaptureDependencies));
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphNode_t nodes[2];
  count = 2;
  CHECK(cudaGraphGetNodes(graph, nodes, &count));
  std::printf("nodes %zu", count);
  CHECK(cudaGraphNodeGetDependencies(nodes[1], nullptr, nullptr, &count));
  std::printf(", the second after %zu\n", count);

  int one = 1;
  cudaUserObject_t object;
  CHECK(cudaUserObjectCreate(&object, &one, destroy, 1, cudaUserObjectNoDestructorSync));
  CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  uint32_t last = 0;
  CHECK(cudaMemcpy(&last, words + kWords - 1, sizeof last, cudaMemcpyDeviceToHost));
  std::printf("launched: %08x, destroyed %d", last, destroyed.load());
  CHECK(cudaGraphExecDestroy(exec));
  while (destroyed == 0) std::this_thread::yield();
  std::printf(", then %d\n", destroyed.load());
  CHECK(cudaFree(words));
}

void questions(cudaStream_t stream) {
  unsigned long long id = 0, other = 0;
  unsigned flags = 0;
  int priority = 1;
  CHECK(cudaStreamGetId(stream, &id));
  CHECK(cudaStreamGetId(nullptr, &other));
  CHECK(cudaStreamGetFlags(stream, &flags));
  CHECK(cudaStreamGetPriority(stream, &priority));
  std::printf("stream: other id %d, flags %u, priority %d\n", id != other, flags, priority);
  char bus[32] = "";
  CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
  cudaMemPool_t pool;
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  uint64_t threshold = 123, seen = 0;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &seen));
  CHECK(cudaMemPoolTrimTo(pool, 0));
  CHECK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &threshold));
  std::printf("bus %s, threshold %d, graphs' memory %d\n", bus[0] != 0 ? "known" : "unknown",
              static_cast<int>(seen), static_cast<int>(threshold));
  CHECK(cudaProfilerStart());
  CHECK(cudaProfilerStop());
}

}  // namespace

int main() {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  launches(stream);
  callbacks_and_events(stream);
  copies_between_devices(stream);
  captures(stream);
  questions(stream);
  CHECK(cudaStreamDestroy(stream));
  return 0;
}
