// SPDX-License-Identifier: Apache-2.0
// Freed memory waits for the work before its free, and for nothing that came later.
//
//   apart capture        a kernel that waits for the host, then a capture in progress
//   apart graph          a graph that is destroyed, or (update) updated, while such a kernel runs
//   apart update
//   apart copy           another context that copies from the block's own after the free, beside
//   apart peer           such a kernel; or gets access to it
//   apart KIND           a kernel of 400 ms before the free, a call of another kind after it:
//                        context, pitch, create, module, stream
//   apart looks BLOCKS   nothing at all

#include <sched.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "../driver_codes.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

using timed::Worker;

CUdeviceptr get(size_t mb) {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, mb * kMiB));
  return block;
}

void say_there(size_t mb) {
  size_t free_bytes = 0, total = 0;
  CUdeviceptr block = 0;
  const Naps naps;
  MUST(cuMemGetInfo(&free_bytes, &total));
  const CUresult code = cuMemAlloc(&block, mb * kMiB);
  std::printf("told: %d, had: %d, at once: %d\n", free_bytes >= mb * kMiB, code, naps.few());
}

// On a device of 100 MiB.
void in_capture(const Worker& a) {
  const CUdeviceptr block = get(60);
  MUST(timed::fill_words(a.kernels, a.stream, block, 64, 1, 1000));
  MUST(cuMemFree(block));
  MUST(cuCtxSynchronize());
  timed::Held held(a.kernels, a.stream);
  CUstream capturing = timed::new_stream();
  CUgraph graph = nullptr;
  MUST(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
  say_there(80);
  MUST(cuStreamEndCapture(capturing, &graph));
  held.end();
}

// On a device of 128 MiB.
void graph_goes(const Worker& a, bool update) {
  CUstream stream = timed::new_stream();
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(get(10));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (const CUdeviceptr block : blocks) {
    MUST(timed::fill_words(a.kernels, stream, block, 16, 1, 10));
  }
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuStreamSynchronize(stream));
  for (const CUdeviceptr block : blocks) MUST(cuMemFree(block));
  timed::Held held(a.kernels, a.stream);
  CUgraphExecUpdateResultInfo info = {};
  MUST(update ? cuGraphExecUpdate(exec, graph, &info) : cuGraphExecDestroy(exec));
  if (update) {
    MUST(cuGraphDestroy(graph));
  }
  say_there(100);
  held.end();
}

// All work of the stream is done. A question is no synchronisation that tells of frees.
void await(CUstream stream) {
  CUresult code;
  while ((code = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) sched_yield();
  MUST(code);
}

// On two devices of 300 MiB.
void tied_later(const Worker& a, bool copy) {
  const CUdeviceptr near = get(4), block = get(250);
  const Worker b(use_device(1));
  const CUdeviceptr far = get(4);
  a.use();
  MUST(cuCtxSynchronize());
  MUST(timed::fill_words(a.kernels, a.stream, block, 64, 1, 50'000));
  MUST(cuMemFree(block));
  b.use();
  timed::Held held(b.kernels, b.stream);
  CUstream other = timed::new_stream();
  if (copy) {
    MUST(cuMemcpyPeerAsync(far, b.context, near, a.context, kMiB, other));
  } else {
    MUST(cuCtxEnablePeerAccess(a.context, 0));
  }
  a.use();
  await(a.stream);
  say_there(250);
  held.end();
  b.use();
  MUST(cuCtxSynchronize());
}

CUresult call(std::string_view kind, CUcontext second) {
  CUdeviceptr block = 0;
  size_t pitch = 0;
  if (kind == "context") {
    MUST(cuCtxSetCurrent(second));
    return cuMemAlloc(&block, 240 * kMiB);
  }
  if (kind == "pitch") return cuMemAllocPitch(&block, &pitch, kMiB, 240, 4);
  if (kind == "create") {
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp wanted = {};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return cuMemCreate(&handle, 240 * kMiB, &wanted, 0);
  }
  if (kind == "module") {
    CUmodule module = nullptr;
    return cuModuleLoadData(&module, timed::kImage);
  }
  CUstream stream = nullptr;
  return cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
}

// On a device of 280 MiB.
void other_kinds(const Worker& a, std::string_view kind) {
  CUcontext second = nullptr;
  if (kind == "context") MUST(cuCtxCreate(&second, nullptr, 0, 0));
  a.use();
  const CUdeviceptr block = get(240);
  MUST(cuCtxSynchronize());
  MUST(timed::fill_words(a.kernels, a.stream, block, 64, 1, 400'000));
  MUST(cuMemFree(block));
  std::printf("%s: %d\n", kind.data(), call(kind, second));
}

// On a device of 270 MiB.
void looks(int count) {
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(get(240 / static_cast<size_t>(count)));
  MUST(cuCtxSynchronize());
  for (const CUdeviceptr block : blocks) MUST(cuMemFree(block));
  say_there(250);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  end_if_it_hangs();
  const std::string_view kind = argv[1];
  const Worker a(use_device(0));
  if (kind == "capture") {
    in_capture(a);
  } else if (kind == "graph" || kind == "update") {
    graph_goes(a, kind == "update");
  } else if (kind == "copy" || kind == "peer") {
    tied_later(a, kind == "copy");
  } else if (kind == "looks") {
    looks(std::atoi(argv[2]));
  } else {
    other_kinds(a, kind);
  }
  a.use();
  MUST(cuCtxSynchronize());
  return 0;
}
