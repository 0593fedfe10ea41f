// SPDX-License-Identifier: Apache-2.0
// Blocks of 1 to 2 MiB take turns on a device that has a page of 2 MiB for each and no more.
// The driver gives each block pages of its own, so that none is ever refused.
//
//   nearly_full LOW HIGH ROUNDS   sizes between LOW and HIGH KiB; in each round a block, drawn
//                                 from a fixed seed, is freed and another one allocated for it

#include <cstdlib>
#include <random>
#include <vector>

#include "../driver_codes.h"
#include "../timed_code.h"

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const auto low = std::strtoul(argv[1], nullptr, 10), high = std::strtoul(argv[2], nullptr, 10);
  const int rounds = std::atoi(argv[3]);
  use_device(0);
  std::minstd_rand random(7);
  const auto size = [&] { return (low + random() % (high - low + 1)) * 1024; };
  size_t free = 0, total = 0;
  std::vector<CUdeviceptr> blocks;
  for (MUST(cuMemGetInfo(&free, &total)); blocks.size() < total / (2 * kMiB) - 2;) {
    blocks.push_back(0);
    MUST(cuMemAlloc(&blocks.back(), size()));
  }
  int refused = 0;
  for (int round = 0; round < rounds; ++round) {
    CUdeviceptr& block = blocks[random() % blocks.size()];
    if (block != 0) MUST(cuMemFree(block));
    block = 0;
    refused += cuMemAlloc(&block, size()) != CUDA_SUCCESS;
  }
  std::printf("refused: %d of %d\n", refused, rounds);
  for (const CUdeviceptr block : blocks) {
    if (block != 0) MUST(cuMemFree(block));
  }
  return 0;
}
