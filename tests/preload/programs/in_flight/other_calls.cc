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
#include "../newer.h"
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

// What is bound to multicast objects and logical endpoints, and made before it is tried.
struct ToBind {
  CUmemGenericAllocationHandle physical = 0, multicast = 0;
  CUdeviceptr mapped = 0;
  CUlogicalEndpointId endpoint = 0;
};
ToBind g_to_bind;

CUresult endpoint_create(CUlogicalEndpointId* id) {
  const unsigned long long any[8]{};  // the properties, which the simulated driver does not read
  MUST(NEWER(cuLogicalEndpointIdReserve, "cuLogicalEndpointIdReserve", 13030)(id, 1));
  return NEWER(cuLogicalEndpointCreate, "cuLogicalEndpointCreate", 13030)(
      *id, reinterpret_cast<const CUlogicalEndpointProp*>(any));
}

void make_to_bind(const char* name) {
  const bool binds =
      std::strncmp(name, "multicast_", 10) == 0 || std::strncmp(name, "endpoint_", 9) == 0;
  if (!binds) return;
  CUmemAllocationProp own{};
  own.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  own.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  const CUmemAccessDesc access{own.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const CUmulticastObjectProp team{1, 2 * kMiB, 0, 0};
  MUST(cuMemCreate(&g_to_bind.physical, 2 * kMiB, &own, 0));
  MUST(cuMemAddressReserve(&g_to_bind.mapped, 2 * kMiB, 0, 0, 0));
  MUST(cuMemMap(g_to_bind.mapped, 2 * kMiB, 0, g_to_bind.physical, 0));
  MUST(cuMemSetAccess(g_to_bind.mapped, 2 * kMiB, &access, 1));
  MUST(cuMulticastCreate(&g_to_bind.multicast, &team));
  if (std::strcmp(name, "endpoint_create") != 0) MUST(endpoint_create(&g_to_bind.endpoint));
}

CUresult multicast_address(Ready&) {
  return NEWER(cuMulticastBindAddr_v2, "cuMulticastBindAddr", 13010)(g_to_bind.multicast, 0, 0,
                                                                     g_to_bind.mapped, 2 * kMiB, 0);
}

CUresult multicast_memory(Ready&) {
  return NEWER(cuMulticastBindMem_v2, "cuMulticastBindMem", 13010)(
      g_to_bind.multicast, 0, 0, g_to_bind.physical, 0, 2 * kMiB, 0);
}

CUresult endpoint_create(Ready&) { return endpoint_create(&g_to_bind.endpoint); }

CUresult endpoint_address(Ready&) {
  return NEWER(cuLogicalEndpointBindAddr, "cuLogicalEndpointBindAddr", 13030)(
      g_to_bind.endpoint, 0, 0, reinterpret_cast<void*>(g_to_bind.mapped), 2 * kMiB, 0);
}

CUresult endpoint_memory(Ready&) {
  return NEWER(cuLogicalEndpointBindMem, "cuLogicalEndpointBindMem", 13030)(
      g_to_bind.endpoint, 0, 0, g_to_bind.physical, 0, 2 * kMiB, 0);
}

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
              {"graph_launch", graph_launch},
              {"multicast_address", multicast_address},
              {"multicast_memory", multicast_memory},
              {"endpoint_create", endpoint_create},
              {"endpoint_address", endpoint_address},
              {"endpoint_memory", endpoint_memory}};

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
  make_to_bind(argv[1]);
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
