// SPDX-License-Identifier: Apache-2.0
// How much memory is locked, and how much the program itself may lock beside it.
// host_memlock MIB, so much is allocated and touched.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../locked_memory.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kPiece = 64 << 10;

}  // namespace

int main(int argc, char** argv) {
  const size_t pieces = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1) * kMiB / kPiece;
  int wrong = 0;
  for (size_t i = 0; i < pieces; ++i) {
    auto* block = static_cast<char*>(std::malloc(kPiece));
    wrong += block == nullptr;
    if (block != nullptr) std::memset(block, 1, kPiece);
  }
  std::printf("failed %d\nlocked %ld\n", wrong, locked_kb());
  constexpr size_t kMost = 1024;
  auto* own = static_cast<char*>(
      mmap(nullptr, kMost * kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  size_t count = 0;
  while (count < kMost && mlock(own + count * kPiece, kPiece) == 0) ++count;
  std::printf("own %zu\n", count * kPiece >> 10);
  return 0;
}
