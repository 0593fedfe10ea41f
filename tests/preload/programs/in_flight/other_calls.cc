// SPDX-License-Identifier: Apache-2.0
// Calls that need memory of the driver's own do not run out of it while a pool keeps some idle.
// Nearly all of a small device is used, a part of it freed, and the call named is made.
//
//   other_calls CALL [held|captured]
//
// held: while work is under way that ends only when the host says so, and is later than the frees.
// captured: while a stream is captured in a mode that forbids others nothing; what the call answers
// is not told.

#include <cstring>
#include <vector>

#include "../driver_codes.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

// With a device of 128 MiB, beside what the same calls took before, and calls that take 24 MiB: 120
// MiB are in use, of which 48 MiB are freed.
constexpr size_t kBytes = 8 * kMiB;
constexpr int kBlocks = 15, kFreed = 6;

struct Ready {
  CUstream stream = timed::new_stream();
  CUmodule lazy = nullptr;
  CUfunction function = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr words = 0;

  Ready() {
    MUST(cuMemAlloc(&words, 4096));
    MUST(cuModuleLoadData(&lazy, timed::kImage));
    MUST(cuModuleGetFunction(&function, lazy, "_Z15slow_fill_wordsPjmjj"));
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD32Async(words, 1, 64, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  }
};

CUresult module_load(Ready&) {
  CUmodule module = nullptr;
  return cuModuleLoadData(&module, timed::kImage);
}

CUresult module_load_ex(Ready&) {
  CUmodule module = nullptr;
  return cuModuleLoadDataEx(&module, timed::kImage, 0, nullptr, nullptr);
}

CUresult module_load_fat(Ready&) {
  CUmodule module = nullptr;
  return cuModuleLoadFatBinary(&module, timed::kImage);
}

CUresult library_load(Ready&) {
  CUlibrary library = nullptr;
  return cuLibraryLoadData(&library, timed::kImage, nullptr, nullptr, 0, nullptr, nullptr, 0);
}

CUresult first_launch(Ready& ready) {
  size_t count = 64;
  uint32_t seed = 1, delay_us = 0;
  void* parameters[] = {&ready.words, &count, &seed, &delay_us};
  return timed::launch(ready.function, ready.stream, parameters);
}

CUresult set_limit(Ready&) { return cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 * kMiB); }

CUresult stream_create(Ready&) {
  CUstream stream = nullptr;
  return cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
}

CUresult stream_with_priority(Ready&) {
  CUstream stream = nullptr;
  return cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -1);
}

CUresult graph_instantiate(Ready& ready) {
  CUgraphExec exec = nullptr;
  return cuGraphInstantiateWithFlags(&exec, ready.graph, 0);
}

CUresult graph_launch(Ready& ready) { return cuGraphLaunch(ready.exec, ready.stream); }

constexpr struct {
  const char* name;
  CUresult (*make)(Ready& ready);
} kCalls[] = {{"module_load", module_load},
              {"module_load_ex", module_load_ex},
              {"module_load_fat", module_load_fat},
              {"library_load", library_load},
              {"first_launch", first_launch},
              {"set_limit", set_limit},
              {"stream_create", stream_create},
              {"stream_with_priority", stream_with_priority},
              {"graph_instantiate", graph_instantiate},
              {"graph_launch", graph_launch}};

CUresult make_call(const char* name, Ready& ready) {
  for (const auto& call : kCalls) {
    if (std::strcmp(call.name, name) == 0) return call.make(ready);
  }
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const bool held = argc > 2 && std::strcmp(argv[2], "held") == 0;
  const bool captured = argc > 2 && std::strcmp(argv[2], "captured") == 0;
  end_if_it_hangs();
  use_device(0);
  const timed::Kernels kernels;
  CUstream stuck = timed::new_stream(), other = timed::new_stream();
  // What a kernel's first launch takes is had before, but for the one that is to be tried.
  MUST(timed::fill_words(kernels, stuck, 0, 0, 0, 0));
  timed::Held warm(kernels, stuck);
  warm.end();
  Ready ready;
  std::vector<CUdeviceptr> blocks(kBlocks);
  for (CUdeviceptr& block : blocks) {
    MUST(cuMemAlloc(&block, kBytes));
    MUST(timed::fill_words(kernels, stuck, block, 64, 1, 0));
  }
  MUST(cuCtxSynchronize());
  for (int i = 0; i < kFreed; ++i) {
    MUST(cuMemFree(blocks.back()));
    blocks.pop_back();
  }
  timed::Held* later = held ? new timed::Held(kernels, stuck) : nullptr;
  const Naps naps;
  if (captured) {
    CUgraph graph = nullptr;
    MUST(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    make_call(argv[1], ready);
    std::printf("the capture goes on: %d\n", cuStreamEndCapture(other, &graph));
    return 0;
  } else {
    std::printf("%s: %d\n", argv[1], make_call(argv[1], ready));
  }
  std::printf("at once: %d\n", naps.few());
  if (later != nullptr) later->end();
  MUST(cuCtxSynchronize());
  for (const CUdeviceptr block : blocks) MUST(cuMemFree(block));
  return 0;
}
