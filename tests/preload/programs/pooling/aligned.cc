// SPDX-License-Identifier: Apache-2.0
// Blocks of a size and above begin where a setting says, and small ones lie in small chunks.
// What registers memory with a device goes by pages of its own: two blocks in one of them get into
// each other's way.
//
//   aligned BYTES      allocates blocks of BYTES and somewhat more, frees every other one, and
//                      allocates again; says how many begin at no multiple of BYTES

#include <cstdlib>
#include <vector>

#include "../driver_codes.h"

namespace {

constexpr int kBlocks = 200;

CUdeviceptr take(size_t bytes, size_t alignment, int* astray) {
  CUdeviceptr block = 0;
  SAY(cuMemAlloc(&block, bytes));
  if (block % alignment != 0) ++*astray;
  return block;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t wanted = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 512;
  use_device(0);
  std::vector<CUdeviceptr> blocks;
  int astray = 0;
  for (size_t i = 0; i < kBlocks; ++i) blocks.push_back(take(wanted + 100 * i, wanted, &astray));
  SAY(cuCtxSynchronize());
  for (size_t i = 0; i < kBlocks; i += 2) SAY(cuMemFree(blocks[i]));
  for (size_t i = 0; i < kBlocks; i += 2) blocks[i] = take(wanted + 64 * i, wanted, &astray);
  for (const CUdeviceptr block : blocks) SAY(cuMemFree(block));
  std::printf("blocks at other addresses: %d\n", astray);
  return 0;
}
