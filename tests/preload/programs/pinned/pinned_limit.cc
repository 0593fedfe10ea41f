// SPDX-License-Identifier: Apache-2.0
// A limit on pinned memory that was set refuses what exceeds it, and what was freed counts no more.
//
//   pinned_limit MB
//
// Blocks of 4 MiB are pinned until one is refused or MB are pinned; all are freed; and once more.

#include <cstdlib>
#include <vector>

#include "../driver_codes.h"
#include "../timed_code.h"

namespace {

size_t pin_until_refused(size_t most) {
  std::vector<void*> blocks;
  CUresult code = CUDA_SUCCESS;
  while (blocks.size() < most && code == CUDA_SUCCESS) {
    void* memory = nullptr;
    code = cuMemHostAlloc(&memory, 4 * kMiB, 0);
    if (code == CUDA_SUCCESS) blocks.push_back(memory);
  }
  std::printf("%zu MiB, then %d\n", blocks.size() * 4, code);
  for (void* block : blocks) MUST(cuMemFreeHost(block));
  return blocks.size();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const size_t most = std::strtoull(argv[1], nullptr, 10) / 4;
  use_device(0);
  const size_t first = pin_until_refused(most);
  const size_t again = pin_until_refused(most);
  std::printf("as many again: %d\n", first == again);
  std::printf("refused: %d\n", first < most);
  return 0;
}
