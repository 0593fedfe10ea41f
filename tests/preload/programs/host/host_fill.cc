// SPDX-License-Identifier: Apache-2.0
// What fresh and grown blocks of host memory hold: bytes that are not FILL, where that is set.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

// jemalloc's own, where the process has them.
extern "C" {
[[gnu::weak]] void* mallocx(size_t bytes, int flags);
[[gnu::weak]] void* rallocx(void* block, size_t bytes, int flags);
[[gnu::weak]] size_t xallocx(void* block, size_t bytes, size_t extra, int flags);
}

namespace {

constexpr int kZero = 0x40;  // MALLOCX_ZERO

unsigned char fill = 0;
bool looks = false;

// Where the program runs with a fill: how many bytes are not that.
void say(const char* what, const void* block, size_t from, size_t to) {
  size_t other = 0;
  const auto* bytes = static_cast<const unsigned char*>(block);
  asm volatile("" : : "r"(bytes) : "memory");
  for (size_t i = from; looks && i < to; ++i) other += bytes[i] != fill;
  std::printf("%s: %zu bytes not filled\n", what, other);
}

void zero(const char* what, const void* block, size_t from, size_t to) {
  size_t other = 0;
  for (size_t i = from; i < to; ++i) other += static_cast<const unsigned char*>(block)[i] != 0;
  std::printf("%s: %zu bytes not zero\n", what, other);
}

void sizes(size_t bytes) {
  char* block = static_cast<char*>(std::malloc(bytes));
  say("malloc", block, 0, bytes);
  std::memset(block, 1, bytes);
  block = static_cast<char*>(std::realloc(block, 3 * bytes));
  say("realloc", block, bytes, 3 * bytes);
  size_t kept = 0;
  for (size_t i = 0; i < bytes; ++i) kept += block[i] == 1;
  std::printf("kept: %s\n", kept == bytes ? "all" : "NOT ALL");
  std::free(block);
  void* again = std::malloc(3 * bytes);
  say("malloc again", again, 0, 3 * bytes);
  std::free(again);
  void* cleared = std::calloc(3, bytes);
  zero("calloc", cleared, 0, 3 * bytes);
  std::free(cleared);
  void* aligned = memalign(256, bytes);
  say("memalign", aligned, 0, bytes);
  std::free(aligned);
  auto* made = new unsigned char[bytes];
  say("new", made, 0, bytes);
  delete[] made;
}

// A block that shrinks and grows again, also where it stays in its size class, or moves and comes
// back: the program has written all that it had.
void turns(size_t bytes) {
  auto* block = static_cast<char*>(std::calloc(1, bytes));
  for (const size_t less : {bytes - 1, bytes / 2 + 1, bytes / 8 + 1}) {
    std::memset(block, 1, bytes);
    block = static_cast<char*>(std::realloc(block, less));
    block = static_cast<char*>(std::realloc(block, bytes));
    say("grown again", block, less, bytes);
    size_t kept = 0;
    for (size_t i = 0; i < less; ++i) kept += block[i] == 1;
    std::printf("kept: %s\n", kept == less ? "all" : "NOT ALL");
  }
  std::free(block);
  block = static_cast<char*>(std::calloc(1, bytes));
  block = static_cast<char*>(std::realloc(block, bytes + 1));
  say("grown from calloc", block, bytes, bytes + 1);
  std::free(block);
}

// Grows a block by each of them, in place where that is possible.
void grown(size_t bytes, int flags) {
  const auto show = flags == kZero ? zero : say;
  const bool there = mallocx != nullptr;
  auto* block = static_cast<char*>(there ? mallocx(bytes, flags) : std::calloc(3, bytes));
  show("mallocx", block, 0, bytes);
  if (there) block = static_cast<char*>(rallocx(block, 2 * bytes, flags));
  show("rallocx", block, bytes, 2 * bytes);
  show("xallocx", block, 2 * bytes, there ? xallocx(block, 3 * bytes, 0, flags) : 3 * bytes);
  std::free(block);
}

}  // namespace

int main() {
  const char* text = std::getenv("FILL");
  looks = text != nullptr;
  if (looks) fill = static_cast<unsigned char>(std::atoi(text));
  for (size_t bytes = 10; bytes < 10'000'000; bytes *= 7) {
    sizes(bytes);
    turns(bytes);
    for (const int flags : {0, kZero}) grown(bytes, flags);
  }
  return 0;
}
