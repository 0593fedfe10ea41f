// SPDX-License-Identifier: Apache-2.0
// Every function of the malloc family, with what the C library promises of it.
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

extern "C" {
[[gnu::weak]] void cfree(void*);
[[gnu::weak]] void free_sized(void*, size_t);
[[gnu::weak]] void free_aligned_sized(void*, size_t, size_t);
}

namespace {

// Hidden from the compiler, which else leaves the calls out.
template <typename T>
T opaque(T value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Writable, of at least this size, and aligned.
void say(const char* what, void* block, size_t bytes, size_t alignment) {
  const int error = errno;
  if (block == nullptr) {
    std::printf("%s: null, errno %d\n", what, error);
    return;
  }
  std::memset(block, 0x5a, bytes);
  std::printf("%s: %s, %s\n", what,
              reinterpret_cast<uintptr_t>(block) % alignment == 0 ? "aligned" : "NOT ALIGNED",
              malloc_usable_size(block) >= bytes ? "usable" : "TOO SMALL");
}

void sizes() {
  for (size_t bytes = 0; bytes < (size_t{80} << 20); bytes = bytes * 3 + 1) {
    void* block = std::malloc(bytes);
    say("malloc", block, bytes, 16);
    block = std::realloc(block, bytes * 2 + 1);
    say("realloc", block, bytes * 2 + 1, 16);
    std::free(block);
    auto* zero = static_cast<unsigned char*>(std::calloc(bytes / 3 + 1, 3));
    size_t set = 0;
    for (size_t i = 0; i < bytes; ++i) set += zero[i] != 0;
    std::printf("calloc: %zu bytes not zero\n", set);
    std::free(zero);
  }
}

void alignments() {
  for (size_t alignment = sizeof(void*); alignment <= (size_t{1} << 22); alignment *= 2) {
    void* block = nullptr;
    std::printf("posix_memalign: %d\n", posix_memalign(&block, alignment, 1000));
    say("posix_memalign", block, 1000, alignment);
    std::free(block);
    block = aligned_alloc(alignment, 4 * alignment);
    say("aligned_alloc", block, 4 * alignment, alignment);
    std::free(block);
    block = memalign(alignment, 100);
    say("memalign", block, 100, alignment);
    std::free(block);
  }
  for (const size_t alignment : {size_t{0}, size_t{3}, size_t{48}, size_t{5000}}) {
    void* rounded = memalign(opaque(alignment), 100);
    say("memalign to no power of two", rounded, 100, 16);
    std::free(rounded);
  }
  void* block = reinterpret_cast<void*>(1);
  for (const size_t alignment : {size_t{0}, size_t{3}, size_t{4}, size_t{24}}) {
    std::printf("posix_memalign to %zu: %d, %s\n", alignment,
                posix_memalign(&block, opaque(alignment), 8),
                block == reinterpret_cast<void*>(1) ? "untouched" : "TOUCHED");
  }
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const size_t bytes : {size_t{0}, size_t{1}, page, page + 1}) {
    block = valloc(bytes);
    say("valloc", block, bytes, page);
    std::free(block);
    block = pvalloc(bytes);
    say("pvalloc", block, (bytes + page - 1) / page * page, page);
    std::free(block);
  }
}

void too_much() {
  const size_t most = opaque(SIZE_MAX);
  const auto fails = [](const char* what, void* block) {
    std::printf("%s: %s, errno %d\n", what, block == nullptr ? "null" : "A BLOCK", errno);
    errno = 0;
  };
  char* const kept = static_cast<char*>(std::malloc(10));
  std::strcpy(kept, "still me");
  errno = 0;
  fails("malloc", std::malloc(most));
  fails("calloc", std::calloc(most / 2, 3));
  fails("realloc", std::realloc(opaque(kept), most / 2));
  fails("reallocarray", reallocarray(opaque(kept), most / 2, 3));
  fails("memalign", memalign(64, most - 100));
  fails("aligned_alloc", aligned_alloc(64, most - 127));
  fails("valloc", valloc(most - 10));
  fails("pvalloc", pvalloc(most - 10));
  void* block = nullptr;
  std::printf("posix_memalign: %d\n", posix_memalign(&block, 64, most - 100));
  std::printf("%s\n", kept);
  std::free(kept);
}

void odd_ones() {
  errno = 17;
  std::free(nullptr);
  std::free(std::malloc(100000));
  std::free(std::malloc(size_t{40} << 20));
  std::printf("errno after free: %d\n", errno);
  void* block = std::realloc(nullptr, 100);
  say("realloc of null", block, 100, 16);
  std::printf("usable size of null: %zu\n", malloc_usable_size(opaque<void*>(nullptr)));
  block = reallocarray(block, 10, 30);
  say("reallocarray", block, 300, 16);
  if (cfree != nullptr) {
    cfree(block);
  } else {
    std::free(block);
  }
  // What the C library allocates itself.
  char* line = nullptr;
  size_t size = 0;
  std::FILE* file = std::fopen("/proc/self/comm", "r");
  std::printf("getline: %zd\n", getline(&line, &size, file));
  std::fclose(file);
  std::free(line);
  std::free(strdup("copy"));
  std::free(realpath("/proc/self", nullptr));
  std::free(getcwd(nullptr, 0));
}

// C23, where there is one: with the size that was asked for.
void sized() {
  void* block = std::malloc(1000);
  free_sized != nullptr ? free_sized(block, 1000) : std::free(block);
  block = aligned_alloc(256, 1024);
  free_aligned_sized != nullptr ? free_aligned_sized(block, 256, 1024) : std::free(block);
}

void operators() {
  struct alignas(128) Wide {
    char bytes[300];
  };
  auto* wide = opaque(new Wide[3]);
  say("new, aligned", wide, sizeof(Wide) * 3, 128);
  delete[] wide;
  try {
    delete[] opaque(new char[opaque(SIZE_MAX / 2)]);
    std::puts("NO bad_alloc");
  } catch (const std::bad_alloc&) {
    std::puts("bad_alloc");
  }
  std::printf("nothrow: %s\n",
              new (std::nothrow) char[opaque(SIZE_MAX / 2)] == nullptr ? "null" : "A BLOCK");
  std::vector<std::string> all;
  for (int i = 0; i < 10000; ++i) all.push_back(std::string(static_cast<size_t>(i % 300), 'x'));
  size_t sum = 0;
  for (const std::string& one : all) sum += one.size();
  std::printf("strings: %zu\n", sum);
}

// Blocks that other threads free.
void threads() {
  std::vector<std::vector<char*>> handed(8);
  std::vector<std::thread> all;
  for (size_t i = 0; i < 8; ++i) {
    all.emplace_back([&, i] {
      for (size_t j = 0; j < 2000; ++j) {
        char* block = static_cast<char*>(std::malloc(1 + j * 37 % 100000));
        *block = static_cast<char>(j);
        handed[i].push_back(block);
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  all.clear();
  std::atomic<int> wrong{0};
  for (size_t i = 0; i < 8; ++i) {
    all.emplace_back([&, i] {
      const auto& blocks = handed[(i + 3) % 8];
      for (size_t j = 0; j < blocks.size(); ++j) {
        wrong += *blocks[j] != static_cast<char>(j);
        std::free(blocks[j]);
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  std::printf("wrong: %d\n", wrong.load());
}

}  // namespace

// More than the machine has.
void more_than_there_is() {
  void* block = std::malloc(opaque(size_t{1} << 45));
  std::printf("malloc of 32 TiB: %s, errno %d\n", block == nullptr ? "null" : "A BLOCK", errno);
}

// "huge": with a request for more than the machine has.
int main(int argc, char**) {
  sizes();
  alignments();
  too_much();
  if (argc > 1) more_than_there_is();
  odd_ones();
  sized();
  operators();
  threads();
  return 0;
}
