// SPDX-License-Identifier: Apache-2.0
// Units that lie idle go back in a program that only sleeps, also beside an endless kernel.
// The kernel is there from the start, in another context of the device, or comes after the frees;
// or there is none: the argument says which.

#include <dlfcn.h>

#include <string>
#include <vector>

#include "../../../sim/include/simcuda/watch.h"
#include "../driver_codes.h"
#include "../test_clock.h"
#include "../timed_code.h"

namespace {

using namespace timed;

unsigned long long units() {
  const auto ask = reinterpret_cast<void (*)(SimcudaVirtualMemory*)>(
      dlsym(RTLD_DEFAULT, "simcuda_virtual_memory"));
  SimcudaVirtualMemory there{};
  if (ask != nullptr) ask(&there);
  return there.handles;
}

size_t free_bytes() {
  size_t bytes = 0, total = 0;
  MUST(cuMemGetInfo(&bytes, &total));
  return bytes;
}

// 28 units at least; a kernel is at work on each block of it when it is freed.
void burst(const Worker& worker) {
  std::vector<CUdeviceptr> blocks(8 + 80);
  for (size_t i = 0; i < blocks.size(); ++i) {
    MUST(cuMemAlloc(&blocks[i], i < 8 ? 6 * kMiB : 100'000));
    MUST(fill_words(worker.kernels, worker.stream, blocks[i], /*count=*/1000, 1, /*delay_us=*/50));
  }
  for (const CUdeviceptr block : blocks) MUST(cuMemFree(block));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "";
  MUST(cuInit(0));
  CUcontext other = nullptr, context = nullptr;
  MUST(cuCtxCreate(&other, nullptr, 0, 0));
  const Worker elsewhere(other);
  MUST(cuCtxCreate(&context, nullptr, 0, 0));
  const Worker worker(context);
  const size_t at_first = free_bytes();

  const auto holds = [](const Worker& where) {
    where.use();
    return new Held(where.kernels, where.stream);
  };
  Held* endless = way == "beside" ? holds(elsewhere) : nullptr;
  worker.use();
  for (int i = 0; i < 3; ++i) {
    burst(worker);
    if (way == "after" && i == 2) endless = holds(worker);
    test_clock::live_until([] { return units() == 0; });
    std::printf("all units went back 1\n");
    std::printf("%zu bytes less are free\n", at_first - free_bytes());
  }
  if (endless != nullptr) endless->end();
  SAY(cuCtxSynchronize());
  for (const CUcontext each : {context, other}) SAY(cuCtxDestroy(each));
  return 0;
}
