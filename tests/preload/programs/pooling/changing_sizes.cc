// SPDX-License-Identifier: Apache-2.0
// What the report advises: sizes that the default strategy keeps asking the driver for, and others.
//
//   mixed           a size of its own for each block, one block of many at a time
//   few             all blocks of a size, then all of another one, over and over
//   grows           blocks that stay, until the program ends
//   loads LIBRARY   a few large blocks that stay, as of a pool of the program's own; with LIBRARY
//   reuses LIBRARY  the same size over and over, with LIBRARY
//
// mixed and few stop the test clock, where it is preloaded: how much of what they give back is kept
// depends on when the background thread comes.

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "../driver_codes.h"
#include "../test_clock.h"

namespace {

int g_failures = 0;

CUdeviceptr get(size_t bytes) {
  CUdeviceptr block = 0;
  g_failures += cuMemAlloc(&block, bytes) != CUDA_SUCCESS;
  return block;
}

void give_back(CUdeviceptr block) { g_failures += cuMemFree(block) != CUDA_SUCCESS; }

void stop_clock() {
  if (dlsym(RTLD_DEFAULT, "test_clock_stop") != nullptr) test_clock::stop();
}

// A thread of Cistern's that begins after the clock stands looks once: what it has in hand then
// counts as in use, and stays so while the clock stands.
void wait_for_first_look() {
  if (dlsym(RTLD_DEFAULT, "test_clock_settle") != nullptr) test_clock::settle();
}

void mixed() {
  constexpr size_t kSlots = 10, kRounds = 5000;
  stop_clock();
  std::vector<CUdeviceptr> blocks(kSlots, 0);
  unsigned long long random = 7;
  for (size_t round = 0; round < kRounds; ++round) {
    random = random * 6364136223846793005 + 1442695040888963407;
    CUdeviceptr& block = blocks[(random >> 40) % kSlots];
    if (block != 0) give_back(block);
    block = get(kMiB + (random >> 33) % (15 * kMiB));
    g_failures += cuCtxSynchronize() != CUDA_SUCCESS;
    if (round < 2 * kSlots) wait_for_first_look();
  }
  for (const CUdeviceptr block : blocks) {
    if (block != 0) give_back(block);
  }
}

void few() {
  constexpr int kRounds = 80;
  stop_clock();
  for (int round = 0; round < kRounds; ++round) {
    for (const size_t bytes : {40 * kMiB, 48 * kMiB}) {
      std::vector<CUdeviceptr> blocks;
      for (int i = 0; i < 8; ++i) blocks.push_back(get(bytes));
      for (const CUdeviceptr block : blocks) give_back(block);
      g_failures += cuCtxSynchronize() != CUDA_SUCCESS;
      if (round == 0) wait_for_first_look();
    }
  }
}

void grows(int blocks) {
  for (int i = 0; i < blocks; ++i) get(2 * kMiB);
}

void reuses() {
  for (int i = 0; i < 100; ++i) give_back(get(2 * kMiB));
}

bool load(const char* library) { return dlopen(library, RTLD_NOW) != nullptr; }

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  const auto is = [=](const char* name) { return std::strcmp(words[1], name) == 0; };
  if (count > 2 && !load(words[2])) return 1;
  use_device(0);
  if (is("mixed")) mixed();
  if (is("few")) few();
  if (is("grows")) grows(1500);
  if (is("loads")) grows(5);
  if (is("reuses")) reuses();
  std::printf("failures: %d\n", g_failures);
  return 0;
}
