// SPDX-License-Identifier: Apache-2.0
// What a driver function does of which no table knows is taken for the worst.
// It copies, begins a capture, or makes a stream or a context.
//
//   unknown_calls WAY PART [BYTES]
//
// WAY: how the program finds the function: library, version, everywhere, next, resolver.
// PART: copies (between contexts), loaded (the same, by a library that is linked with the
// function), loaded_late (once the pools have what they need), one_context, capture, stream,
// context, shortage, takes, waits, arguments, many.

#include <dlfcn.h>

#include <cstdlib>
#include <initializer_list>

#include "../driver_codes.h"
#include "../driver_memory.h"
#include "../watch_time.h"
#include "simcuda/unknown.h"
#include "unseen_work.h"

namespace {

const char* g_way;

void* look_up(const char* name) {
  const auto is = [](const char* way) { return std::strcmp(g_way, way) == 0; };
  static void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (is("library")) return dlsym(library, name);
  // The driver gives its symbols no versions; then the plain question has an answer.
  if (is("version")) {
    void* found = dlvsym(library, name, "libcuda.so.1");
    return found != nullptr ? found : dlsym(library, name);
  }
  if (is("everywhere")) return dlsym(RTLD_DEFAULT, name);
  if (is("next")) return dlsym(RTLD_NEXT, name);
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  MUST(cuGetProcAddress(name, &function, 13000, 0, &status));
  return function;
}

// Both look-ups find the same.
template <typename Function>
Function* find(const char* name) {
  void* found = look_up(name);
  if (found == nullptr || look_up(name) != found) std::printf("%s: not found\n", name);
  return reinterpret_cast<Function*>(found);
}
#define FIND(function) find<decltype(function)>(#function)

// Loaded when CUDA is at work already.
unseen::Copy loaded() {
  void* library = dlopen("liblinks_unknown.so", RTLD_LAZY | RTLD_LOCAL);
  return reinterpret_cast<unseen::Copy>(library == nullptr ? nullptr
                                                           : dlsym(library, "linked_copy"));
}

void one_context(CUcontext context, size_t bytes) {
  unseen::copies(context, context, FIND(cuUnknownCopyAsync), bytes);
}

// Frees a block of each context, for what is asked for later.
void fill_pools(std::initializer_list<CUcontext> contexts, size_t bytes) {
  for (const CUcontext each : contexts) {
    MUST(cuCtxSetCurrent(each));
    MUST(cuMemFree(unseen::new_block(bytes, 0)));
    MUST(cuCtxSynchronize());
  }
}

// Marks and other calls of a pool's own would invalidate it.
void capture(size_t bytes) {
  CUstream stream = timed::new_stream(), other = timed::new_stream();
  const CUdeviceptr kept = unseen::new_block(unseen::kBytes, 0);
  CUdeviceptr blocks[4];
  for (CUdeviceptr& block : blocks) block = unseen::new_block(bytes, 1);
  SAY(FIND(cuUnknownBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SAY(cuMemsetD32Async(kept, 7, unseen::kWords, stream));
  for (CUdeviceptr& block : blocks) {
    SAY(cuMemFree(block));
    SAY(cuMemAlloc(&block, bytes));
    SAY(cuMemsetD32Async(block, 2, unseen::kWords, other));
  }
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  SAY(cuStreamEndCapture(stream, &graph));
  SAY(cuGraphInstantiateWithFlags(&exec, graph, 0));
  SAY(cuGraphLaunch(exec, stream));
  SAY(cuStreamSynchronize(stream));
  uint32_t seen = 0;
  SAY(cuMemcpyDtoH(&seen, kept, sizeof seen));
  std::printf("kept %u\n", seen);
  for (const CUdeviceptr block : blocks) SAY(cuMemFree(block));
}

// A pool that records an event on each stream knows nothing of this one.
void stream(CUcontext context, size_t bytes) {
  CUstream hidden = nullptr;
  SAY(FIND(cuUnknownStreamCreate)(&hidden, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr block = unseen::new_block(bytes, 3);
  SAY(cuMemsetD8Async(block, 1, unseen::kBytes, hidden));
  CUdeviceptr next = 0;
  CUstream other = timed::new_stream();
  SAY(cuMemFree(block));
  for (int i = 0; i < 3; ++i) {
    SAY(cuMemAlloc(&next, bytes));
    SAY(cuMemsetD32Async(next, 5, unseen::kWords, other));
  }
  unseen::tell(context, next);
}

// Nothing is allocated in it.
void another_context(CUcontext owner, size_t bytes) {
  CUcontext hidden = nullptr;
  const CUdeviceptr there = unseen::new_block(unseen::kBytes, 0);
  const CUdeviceptr block = unseen::new_block(bytes, 3);
  SAY(FIND(cuUnknownCtxCreate)(&hidden, 0, 0));
  unseen::begin(cuMemcpyDtoDAsync, there, block, timed::new_stream());
  unseen::free_and_use(owner, block, bytes);
  SAY(cuCtxSetCurrent(hidden));
  SAY(cuCtxSynchronize());
  unseen::tell(owner, there);
}

void call_unknown() {
  double sum = 0;
  SAY(FIND(cuUnknownVariadic)(&sum, 0));
}

// What a pool holds when the function is called is the driver's again once it is free, and serves
// any other request of the program. On a device of 64 MiB.
void shortage() {
  CUdeviceptr large[8], small[64], block = 0;
  for (CUdeviceptr& each : large) MUST(cuMemAlloc(&each, 4 * kMiB));
  for (CUdeviceptr& each : small) MUST(cuMemAlloc(&each, 4096));
  for (int i = 0; i < 4; ++i) MUST(cuMemFree(large[i]));
  call_unknown();
  for (int i = 4; i < 8; ++i) MUST(cuMemFree(large[i]));
  std::printf("large ones kept %d\n", driver_memory().held >= 4 * kMiB);
  SAY(cuMemAlloc(&block, 56 * kMiB));
  SAY(cuMemFree(block));
  for (const CUdeviceptr each : small) MUST(cuMemFree(each));
  size_t free = 0, total = 0;
  MUST(cuMemGetInfo(&free, &total));
  std::printf("all free %d\n", free == total);
  SAY(cuMemAlloc(&block, 62 * kMiB));
  SAY(cuMemFree(block));
}

// A call of the driver that needs memory on the way finds what the pools kept idle.
void takes() {
  CUdeviceptr blocks[8];
  for (CUdeviceptr& block : blocks) MUST(cuMemAlloc(&block, 4 * kMiB));
  for (const CUdeviceptr block : blocks) MUST(cuMemFree(block));
  call_unknown();
  CUstream stream = nullptr;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

// The program takes the free of a block from before the call for a wait, where nothing else was
// submitted.
void waits() {
  const CUdeviceptr block = unseen::new_block(unseen::kBytes, 3), kept = unseen::new_block(4096, 1);
  const CUdeviceptr source = unseen::new_block(4096, 3);
  CUstream stream = timed::new_stream();
  uint32_t* seen = nullptr;
  MUST(cuMemAllocHost(reinterpret_cast<void**>(&seen), unseen::kBytes));
  seen[0] = seen[1] = 0;
  MUST(cuCtxSynchronize());
  const auto copy = FIND(cuUnknownCopyAsync);
  MUST(copy(reinterpret_cast<CUdeviceptr>(seen), source, unseen::kBytes, stream));
  MUST(cuMemFree(block));
  std::printf("seen %u\n", __atomic_load_n(seen, __ATOMIC_ACQUIRE));
  // After a free that waited, too.
  seen[0] = 0;
  MUST(copy(reinterpret_cast<CUdeviceptr>(seen), source, unseen::kBytes, stream));
  MUST(cuMemFree(kept));
  std::printf("seen again %u\n", __atomic_load_n(seen, __ATOMIC_ACQUIRE));
  MUST(cuStreamSynchronize(stream));
}

// They arrive as they are, at the first call and at later ones.
void arguments() {
  const auto call = FIND(cuUnknownArguments);
  const auto add = FIND(cuUnknownVariadic);
  for (int i = 0; i < 3; ++i) {
    double sum = 0;
    SAY(call(&sum, -1, 2LL << 40, -3, 250, 5, -6, 7, 8.5, 9.25F, 10, 11, -12, 13, 14, 15.125, 16,
             17.5F, {{1, 2, 3, 4, 1LL << 30}}));
    std::printf("sum %.4f\n", sum);
    SAY(add(&sum, 10, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.5));
    std::printf("sum %.4f\n", sum);
  }
}

// More than there are places for what goes on before their calls.
void call_many() {
  int wrong = 0;
  for (int i = 100; i < 400; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "cuUnknownMany%d", i);
    const auto call = reinterpret_cast<CUresult (*)()>(look_up(name));
    wrong += call == nullptr || call() != static_cast<CUresult>(i) ? 1 : 0;
  }
  std::printf("wrong %d\n", wrong);
}

void look_up_many() {
  for (int i = 100; i < 400; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "cuUnknownMany%d", i);
    if (look_up(name) == nullptr) std::printf("%s: not found\n", name);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  g_way = argv[1];
  const auto is = [argv](const char* part) { return std::strcmp(argv[2], part) == 0; };
  const size_t bytes = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
  end_if_it_hangs();
  CUcontext other = use_device(1), context = use_device(0);
  const bool late = is("loaded_late"), links = late || is("loaded");
  const bool two = is("copies") || is("many") || links;
  if (!two) MUST(cuDevicePrimaryCtxRelease(1));
  if (is("many")) look_up_many();
  if (is("copies") || is("many")) unseen::copies(context, other, FIND(cuUnknownCopyAsync), bytes);
  if (late) fill_pools({context, other}, bytes);
  if (links) unseen::copies(context, other, loaded(), bytes);
  if (is("one_context")) one_context(context, bytes);
  if (is("capture")) capture(bytes);
  if (is("stream")) stream(context, bytes);
  if (is("context")) another_context(context, bytes);
  if (is("shortage")) shortage();
  if (is("takes")) takes();
  if (is("waits")) waits();
  if (is("arguments")) arguments();
  if (is("many")) call_many();
  return 0;
}
