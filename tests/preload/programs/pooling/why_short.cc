// SPDX-License-Identifier: Apache-2.0
// Ways to run out of memory, each for a reason of its own.
//
//   why_short pieces   enough is free, but nowhere in one piece
//   why_short apart    it would be enough with what was never asked for
//   why_short beside   most of it is mapped by the program itself
//   why_short live     the program holds nearly all
//   why_short odd      it holds all, in blocks that the driver rounds up
//   why_short huge     nothing: the request is larger than the device

#include <cstdint>
#include <cstring>
#include <vector>

#include "../driver_codes.h"

namespace {

constexpr size_t kBlock = 8 * kMiB;

std::vector<CUdeviceptr> take(size_t most, size_t bytes = kBlock) {
  std::vector<CUdeviceptr> blocks;
  CUdeviceptr block = 0;
  while (blocks.size() < most && cuMemAlloc(&block, bytes) == CUDA_SUCCESS) {
    blocks.push_back(block);
  }
  return blocks;
}

void free_one_in(size_t of, const std::vector<CUdeviceptr>& blocks) {
  for (size_t i = 0; i < blocks.size(); i += of) cuMemFree(blocks[i]);
  SAY(cuCtxSynchronize());
}

void take_beside() {
  CUmemAllocationProp what{};
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemGenericAllocationHandle memory;
  SAY(cuMemCreate(&memory, 192 * kMiB, &what, 0));
}

}  // namespace

int main(int argc, char** argv) {
  const char* why = argc > 1 ? argv[1] : "";
  use_device(0);
  CUdeviceptr block = 0;
  if (std::strcmp(why, "pieces") == 0) free_one_in(2, take(SIZE_MAX));
  if (std::strcmp(why, "apart") == 0) free_one_in(3, take(192 * kMiB / kBlock));
  if (std::strcmp(why, "beside") == 0) take_beside();
  if (std::strcmp(why, "live") == 0) take(SIZE_MAX);
  if (std::strcmp(why, "odd") == 0) take(SIZE_MAX, 3 * kMiB);
  const size_t wanted = std::strcmp(why, "huge") == 0 ? 4096 * kMiB : 96 * kMiB;
  std::printf("%s: %d\n", why, cuMemAlloc(&block, wanted));
  return 0;
}
