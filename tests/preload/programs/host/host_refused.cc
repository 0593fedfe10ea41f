// SPDX-License-Identifier: Apache-2.0
// Allocates and frees while the system refuses (fixtures/refuses.cc): requests may fail, no more.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "../test_clock.h"

namespace {

// Not by way of stdio, which allocates.
void say(const char* text) {
  if (write(STDOUT_FILENO, text, std::strlen(text)) < 0) _exit(1);
}

int wrong = 0;

constexpr size_t kMiB = size_t{1} << 20, kLarge = 600 * kMiB;

// The distance between bytes that are checked. A large block is written only at these bytes, since
// the kernel needs time for each written page.
size_t apart(size_t bytes) {
  if (bytes < kMiB) return 4096;
  return bytes < kLarge ? 64 << 10 : kMiB;
}

void* ask(size_t bytes) {
  errno = 0;
  char* block = static_cast<char*>(std::malloc(bytes));
  if (block == nullptr) {
    wrong += errno != ENOMEM;
    return nullptr;
  }
  if (bytes < kMiB) std::memset(block, 0x33, bytes);
  for (size_t at = 0; at < bytes; at += apart(bytes)) block[at] = 0x33;
  block[bytes - 1] = 0x33;
  return block;
}

void look(const char* block, size_t bytes) {
  if (block == nullptr) return;
  for (size_t at = 0; at < bytes; at += apart(bytes)) wrong += block[at] != 0x33;
  wrong += block[bytes - 1] != 0x33;
}

}  // namespace

int main() {
  constexpr size_t kHeld = 32;
  char* held[kHeld] = {};
  size_t sizes[kHeld] = {};
  unsigned random = 1;
  for (int i = 0; i < 1000; ++i) {
    random = random * 1664525 + 1013904223;
    const size_t slot = random >> 27;
    look(held[slot], sizes[slot]);
    std::free(held[slot]);
    sizes[slot] = size_t{1} << (random >> 8) % 23;
    held[slot] = static_cast<char*>(ask(sizes[slot]));
    if (i % 250 == 0) test_clock::live_through(/*ms=*/20, /*steps=*/2);
  }
  std::free(ask(kLarge));
  for (char* block : held) std::free(block);
  say(wrong == 0 ? "nothing wrong\n" : "WRONG\n");
  return 0;
}
