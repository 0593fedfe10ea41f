// SPDX-License-Identifier: Apache-2.0
// Of published blocks the watcher sees reads past the end, and of freed ones, inside a chunk.
// Two blocks side by side, and one mistake; the argument chooses it. What the driver answers to the
// mistake depends on where it placed the blocks, so it is not printed.

#include <cstring>

#include "../driver_codes.h"

int main(int argc, char** argv) {
  use_device(0);
  const char* mistake = argc > 1 ? argv[1] : "";
  constexpr size_t kBytes = 512;
  CUdeviceptr first = 0, second = 0;
  char host[2 * kBytes];
  SAY(cuMemAlloc(&first, kBytes));
  SAY(cuMemAlloc(&second, kBytes));
  SAY(cuMemsetD8(first, 1, kBytes));
  SAY(cuMemsetD8(second, 2, kBytes));
  if (std::strcmp(mistake, "past_the_end") == 0) cuMemcpyDtoH(host, first, kBytes + 1);
  if (std::strcmp(mistake, "after_free") == 0) {
    SAY(cuMemFree(first));
    cuMemcpyDtoH(host, first, kBytes);
  }
  SAY(cuCtxSynchronize());
  return 0;
}
