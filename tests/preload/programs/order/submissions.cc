// SPDX-License-Identifier: Apache-2.0
// Calls every function that hands work to the device, each after a free, with arguments of zero.
// What such a call answers is the driver's; but what was freed before is marked before it is asked.
// The functions are those of the table, so that none can be left out. Those whose work may wait for
// the host are called once more, without a pause since the last mark. With "contexts", there is a
// second context, to whose memory the work might belong. With "then", the free comes after each
// call, and that of an event's record, too: it has something to wait for, where the device was
// idle.

#include <cstdio>
#include <cstring>
#include <type_traits>
#include <vector>

#include "../test_clock.h"
#include "shim/cuda_api.h"

// Those for graphics interfaces are in headers of their own, which are not included.
#define CISTERN_FORWARDED(symbol, parameters, arguments, traits) \
  extern "C" CUresult symbol parameters;
#include "shim/forwarded.def"

namespace {

constexpr unsigned kSubmits = 1, kMayWaitForHost = 2, kTouches = 4, kTakesMemory = 8,
                   kEditsGraph = 16, kLaunchesGraph = 32, kWaitsForDevice = 64, kRecords = 128,
                   kDeviceOnly = 256, kEndsUse = 512, kSharesWithHost = 1024, kNamesVariable = 2048,
                   kOutOfOrder = 4096, kPinsMemory = 8192, kCarries = 16384, kUnloads = 32768,
                   kDescribes = 65536, kAwaits = 131072;

// Longer than marks are apart; the clock stands otherwise.
void pause() { test_clock::move_ns(200'000); }

template <typename... Arguments>
CUresult call(CUresult (*function)(Arguments...)) {
  return function(std::remove_cv_t<Arguments>{}...);
}

template <typename Function>
void submit(const char* symbol, Function* function, CUdeviceptr block, bool after_pause) {
  const CUresult freed = cuMemFree_v2(block);
  if (after_pause) pause();
  std::printf("%s: free %d, call %d\n", symbol, freed, call(function));
}

template <typename Function>
void submit_then_free(const char* symbol, Function* function, CUdeviceptr block) {
  cuCtxSynchronize();
  const CUresult called = call(function);
  std::printf("%s: call %d, free %d\n", symbol, called, cuMemFree_v2(block));
}

constexpr int kFunctions = 0
#define CISTERN_FORWARDED(symbol, parameters, arguments, traits) +1
#include "shim/forwarded.def"
    ;

}  // namespace

int main(int argc, char** argv) {
  test_clock::stop();
  CUcontext first, second = nullptr;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&first, 0);
  if (argc > 1 && std::strcmp(argv[1], "contexts") == 0) {
    cuDevicePrimaryCtxRetain(&second, 1);
    cuCtxSetCurrent(second);
    CUdeviceptr other = 0;
    cuMemAlloc_v2(&other, 4096);
  }
  cuCtxSetCurrent(first);
  // All of them first: an allocation might ask what is clean, and mark what was freed for that.
  std::vector<CUdeviceptr> blocks(2 * kFunctions);
  for (CUdeviceptr& block : blocks) cuMemAlloc_v2(&block, 4096);
  size_t i = 0;
  if (argc > 1 && std::strcmp(argv[1], "then") == 0) {
#define CISTERN_FORWARDED(symbol, parameters, arguments, traits) \
  if (((traits) & (kSubmits | kRecords)) != 0) submit_then_free(#symbol, &symbol, blocks[i++]);
#include "shim/forwarded.def"
    return 0;
  }
#define CISTERN_FORWARDED(symbol, parameters, arguments, traits) \
  if (((traits)&kSubmits) != 0) submit(#symbol, &symbol, blocks[i++], /*after_pause=*/true);
#include "shim/forwarded.def"
#define CISTERN_FORWARDED(symbol, parameters, arguments, traits) \
  if (((traits)&kMayWaitForHost) != 0) submit(#symbol, &symbol, blocks[i++], false);
#include "shim/forwarded.def"
  std::printf("done\n");
  return 0;
}
