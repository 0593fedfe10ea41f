// SPDX-License-Identifier: Apache-2.0
// Captures that renew a graph, add to one or make none are not disturbed by frees inside them.
//
//   recaptured again|again_per_thread|into|graphics

#include <cstring>

#include "../driver_codes.h"
#include "../newer.h"

namespace {

constexpr size_t kWords = 64, kBytes = 3 * kMiB;

CUdeviceptr block() {
  CUdeviceptr address = 0;
  SAY(cuMemAlloc(&address, kBytes));
  return address;
}

unsigned first_word(CUdeviceptr address) {
  unsigned word = 0;
  SAY(cuMemcpyDtoH(&word, address, sizeof word));
  return word;
}

// Each is followed by work, before which a pool might mark what was freed.
void free_and_fill(CUdeviceptr freed, CUdeviceptr filled, unsigned value, CUstream stream) {
  SAY(cuMemFree(freed));
  SAY(cuMemsetD32Async(filled, value, kWords, stream));
}

CUgraph captured(CUdeviceptr filled, CUstream stream) {
  CUgraph graph = nullptr;
  SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuMemsetD32Async(filled, 1, kWords, stream));
  SAY(cuStreamEndCapture(stream, &graph));
  return graph;
}

CUresult note_change(void* changes, CUgraphNode, const CUgraphNodeParams*, const CUgraphNodeParams*,
                     CUgraphRecaptureStatus) {
  ++*static_cast<int*>(changes);
  return CUDA_SUCCESS;
}

// What the driver has for the program's own default stream is another function.
CUresult begin_again(CUstream stream, CUgraph graph, int* changes, bool per_thread) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  const CUresult code = cuGetProcAddress("cuStreamBeginRecaptureToGraph", &function, 13030,
                                         per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                                    : CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                                         &status);
  if (code != CUDA_SUCCESS || function == nullptr) return CUDA_ERROR_NOT_FOUND;
  return reinterpret_cast<decltype(&cuStreamBeginRecaptureToGraph)>(function)(
      per_thread ? nullptr : stream, CU_STREAM_CAPTURE_MODE_RELAXED, graph, note_change, changes);
}

void again(CUstream stream, bool per_thread) {
  CUdeviceptr old = block(), spare = block(), filled = block();
  CUgraph graph = captured(old, stream), same = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphExecUpdateResultInfo info{};
  int changes = 0;
  SAY(cuGraphInstantiateWithFlags(&exec, graph, 0));
  SAY(cuGraphLaunch(exec, stream));
  SAY(cuStreamSynchronize(stream));
  SAY(begin_again(stream, graph, &changes, per_thread));
  free_and_fill(spare, filled, 7, stream);
  SAY(cuMemFree(old));
  SAY(cuStreamEndCapture(stream, &same));
  std::printf("the same graph %d, changes %d\n", same == graph, changes);
  SAY(cuGraphExecUpdate(exec, graph, &info));
  SAY(cuGraphLaunch(exec, stream));
  SAY(cuStreamSynchronize(stream));
  std::printf("word %u\n", first_word(filled));
  SAY(cuGraphExecDestroy(exec));
  SAY(cuGraphDestroy(graph));
  SAY(cuMemFree(filled));
}

void into(CUstream stream) {
  CUdeviceptr first = block(), spare = block(), second = block();
  CUgraph graph = captured(first, stream), same = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
  size_t one = 1;
  SAY(cuGraphGetNodes(graph, &node, &one));
  SAY(cuStreamBeginCaptureToGraph(stream, graph, &node, nullptr, 1,
                                  CU_STREAM_CAPTURE_MODE_RELAXED));
  free_and_fill(spare, second, 7, stream);
  SAY(cuStreamEndCapture(stream, &same));
  std::printf("the same graph %d\n", same == graph);
  SAY(cuGraphInstantiateWithFlags(&exec, graph, 0));
  SAY(cuGraphLaunch(exec, stream));
  SAY(cuStreamSynchronize(stream));
  std::printf("words %u, %u\n", first_word(first), first_word(second));
  SAY(cuGraphExecDestroy(exec));
  SAY(cuGraphDestroy(graph));
  SAY(cuMemFree(first));
  SAY(cuMemFree(second));
}

// What is captured becomes part of a command list of a graphics interface.
void graphics(CUstream stream) {
  CUdeviceptr spare = block(), filled = block();
  CUgraph graph = nullptr;
  void* list = nullptr;  // the driver's parameters begin with a pointer
  const auto begin = NEWER(cuStreamBeginCaptureToCig, "cuStreamBeginCaptureToCig", 13020);
  const auto end = NEWER(cuStreamEndCaptureToCig, "cuStreamEndCaptureToCig", 13020);
  SAY(end(stream));
  SAY(begin(stream, reinterpret_cast<CUstreamCigCaptureParams*>(&list)));
  free_and_fill(spare, filled, 7, stream);
  SAY(cuStreamEndCapture(stream, &graph));
  SAY(end(stream));
  SAY(cuMemsetD32(filled, 2, kWords));
  std::printf("word %u\n", first_word(filled));
  SAY(cuMemFree(filled));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const bool per_thread = std::strcmp(argv[1], "again_per_thread") == 0;
  CUstream stream = nullptr;
  use_device(0);
  if (per_thread) {
    stream = CU_STREAM_PER_THREAD;
  } else {
    SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  if (per_thread || std::strcmp(argv[1], "again") == 0) again(stream, per_thread);
  if (std::strcmp(argv[1], "into") == 0) into(stream);
  if (std::strcmp(argv[1], "graphics") == 0) graphics(stream);
  // What was captured and is over holds nothing back.
  allocate_and_free(100, kBytes);
  return 0;
}
