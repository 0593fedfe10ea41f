// SPDX-License-Identifier: Apache-2.0
// Which freed block serves which request under CISTERN_MEMORY_OPTIMIZE, seen by addresses.
// Frees blocks of three sizes and asks for others and the same again. Whether a new block lies
// where a freed one was is told in the trace alone, by a fill with the value 1 (else 0): without a
// pool it is the driver's affair.
//
//   levels   small and large blocks
//   full     the device full of small blocks, freed, and other sizes asked for

#include <cstdlib>
#include <cstring>
#include <vector>

#include "../driver_codes.h"

namespace {

struct Block {
  CUdeviceptr begin;
  size_t bytes;
};

std::vector<Block> freed;
CUdeviceptr board;  // where it is told

CUdeviceptr get(size_t bytes) {
  CUdeviceptr block = 0;
  SAY(cuMemAlloc(&block, bytes));
  bool again = false;
  for (const Block& old : freed)
    again |= block < old.begin + old.bytes && old.begin < block + bytes;
  cuMemsetD8(board, again ? 1 : 0, 1);
  cuMemsetD16(block, 7, bytes / 2);
  return block;
}

void levels() {
  const size_t sizes[] = {4 << 10, 4 * kMiB, 16 * kMiB};
  for (const size_t bytes : sizes) freed.push_back({get(bytes), bytes});
  for (const Block& block : freed) SAY(cuMemFree(block.begin));
  SAY(cuCtxSynchronize());
  const size_t asked[] = {2 << 10, 4 << 10, 8 << 10, kMiB, 4 * kMiB - 512, 4 * kMiB, 16 * kMiB};
  for (const size_t bytes : asked) get(bytes);
}

// With 64 MiB in all.
void full() {
  const size_t each = 200 << 10;
  for (int round = 0; round < 4; ++round) {
    std::vector<CUdeviceptr> blocks;
    for (CUdeviceptr block; cuMemAlloc(&block, each) == CUDA_SUCCESS;) blocks.push_back(block);
    std::printf("full: %s\n", blocks.size() > 250 ? "yes" : "no");
    for (const CUdeviceptr block : blocks) cuMemFree(block);
    for (const size_t bytes : {300 << 10, 3 << 20, 20 << 20, 100 << 10}) {
      CUdeviceptr block;
      SAY(cuMemAlloc(&block, bytes));
      SAY(cuMemFree(block));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CUcontext context;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  const char* what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "full") == 0) {
    full();
    return 0;
  }
  cuMemAlloc(&board, 512);
  if (strcmp(what, "levels") == 0) levels();
}
