// SPDX-License-Identifier: Apache-2.0
// Units that lie idle go back in a program that only sleeps, also beside an endless kernel.
// The kernel is there from the start, in another context of the device, or comes after the frees;
// or there is none: the argument says which.

#include <string>
#include <vector>

#include "../driver_codes.h"
#include "../test_clock.h"
#include "../timed_code.h"
#include "../virtual_memory.h"

namespace {

using namespace timed;

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
  const size_t at_first = free_memory();

  const auto holds = [](const Worker& where) {
    where.use();
    return new Held(where.kernels, where.stream);
  };
  Held* endless = way == "beside" ? holds(elsewhere) : nullptr;
  worker.use();
  for (int i = 0; i < 3; ++i) {
    burst(worker);
    if (way == "after" && i == 2) endless = holds(worker);
    test_clock::live_until([] { return driver_virtual_memory().handles == 0; });
    std::printf("all units went back 1\n");
    std::printf("%zu bytes less are free\n", at_first - free_memory());
  }
  if (endless != nullptr) endless->end();
  SAY(cuCtxSynchronize());
  for (const CUcontext each : {context, other}) SAY(cuCtxDestroy(each));
  return 0;
}
