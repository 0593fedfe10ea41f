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

// Writes it all, or a byte here and there: each page written takes the kernel its time.
void* ask(size_t bytes, size_t apart = 1) {
  errno = 0;
  void* block = std::malloc(bytes);
  if (block == nullptr) {
    wrong += errno != ENOMEM;
    return nullptr;
  }
  if (apart == 1) std::memset(block, 0x33, bytes);
  for (size_t at = 0; apart > 1 && at < bytes; at += apart) static_cast<char*>(block)[at] = 0x33;
  return block;
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
    for (size_t at = 0; held[slot] != nullptr && at < sizes[slot]; at += 4096) {
      wrong += held[slot][at] != 0x33;
    }
    std::free(held[slot]);
    sizes[slot] = size_t{1} << (random >> 8) % 23;
    held[slot] = static_cast<char*>(ask(sizes[slot]));
    if (i % 250 == 0) test_clock::live_through(/*ms=*/20, /*steps=*/2);
  }
  constexpr size_t kLarge = size_t{600} << 20;
  void* large = ask(kLarge, /*apart=*/size_t{1} << 20);
  std::free(large);
  for (char* block : held) std::free(block);
  say(wrong == 0 ? "nothing wrong\n" : "WRONG\n");
  return 0;
}
