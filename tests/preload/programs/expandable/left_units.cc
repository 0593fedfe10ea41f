// SPDX-License-Identifier: Apache-2.0
// A context ends while the driver refuses to unmap: nothing is left of its units a little later.
//
//   left_units short|asked|ended
//
// What comes next: a request for all of the device's memory; a question for free memory; the end of
// another context.

#include <string_view>

#include "../virtual_memory.h"

namespace {

constexpr size_t kBlock = 8 * kMiB;

CUcontext created_with_a_block() {
  CUcontext context = nullptr;
  CUdeviceptr block = 0;
  SAY(cuCtxCreate(&context, nullptr, 0, 0));
  SAY(cuMemAlloc(&block, kBlock));
  return context;
}

// Twice a unit at the least: memory in whole blocks, so that the driver rounds nothing.
void take_all(size_t bytes) {
  CUdeviceptr block = 0;
  SAY(cuMemAlloc(&block, bytes));
  SAY(cuMemFree(block));
}

}  // namespace

int main(int, char** argv) {
  const std::string_view next = argv[1];
  use_device(0);
  const size_t all = free_memory();
  const CUcontext other = created_with_a_block(), context = created_with_a_block();
  SAY(cuCtxDestroy(context));
  SAY(cuCtxSetCurrent(other));
  if (next == "short") take_all(all - kBlock);
  if (next == "asked") std::printf("free as before: %d\n", free_memory() == all - kBlock);
  SAY(cuCtxDestroy(other));
  if (next == "ended") std::printf("the other one is gone\n");
  use_device(0);
  std::printf("free as before: %d\n", free_memory() == all);
  SAY(cuDevicePrimaryCtxReset(0));
  say_virtual_memory_left();
  return 0;
}
