// SPDX-License-Identifier: Apache-2.0
// The members of the malloc family that jemalloc does not have (left to the C library, a block of
// its own would come to our free(), or one of ours to its), and those that leave errno as it was
// when there is no memory, which programs look at.
#include <jemalloc/jemalloc.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace {
constexpr size_t kPageBytes = 4096;
}

extern "C" {

void* jemalloc_realloc(void* block, size_t bytes);
void* jemalloc_memalign(size_t alignment, size_t bytes);
void* jemalloc_valloc(size_t bytes);

[[gnu::visibility("default")]] void* realloc(void* block, size_t bytes) {
  void* moved = jemalloc_realloc(block, bytes);
  if (moved == nullptr && bytes != 0) [[unlikely]]
    errno = ENOMEM;
  return moved;
}

// As the C library's: an alignment that is no power of two counts as the next one.
[[gnu::visibility("default")]] void* memalign(size_t alignment, size_t bytes) {
  if (alignment > SIZE_MAX / 2 + 1) {
    errno = EINVAL;
    return nullptr;
  }
  void* block = jemalloc_memalign(std::bit_ceil(alignment), bytes);
  if (block == nullptr) errno = ENOMEM;
  return block;
}

[[gnu::visibility("default")]] void* aligned_alloc(size_t alignment, size_t bytes) {
  return memalign(alignment, bytes);
}

[[gnu::visibility("default")]] void* valloc(size_t bytes) {
  void* block = jemalloc_valloc(bytes);
  if (block == nullptr) errno = ENOMEM;
  return block;
}

[[gnu::visibility("default")]] void* reallocarray(void* block, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return realloc(block, bytes);
}

// Whole pages, at a page.
[[gnu::visibility("default")]] void* pvalloc(size_t bytes) {
  if (bytes > SIZE_MAX - kPageBytes) {
    errno = ENOMEM;
    return nullptr;
  }
  const size_t pages = (bytes + kPageBytes - 1) / kPageBytes;
  return memalign(kPageBytes, (pages == 0 ? 1 : pages) * kPageBytes);
}

[[gnu::visibility("default")]] void cfree(void* block) { free(block); }

// C23. The size is a hint that need not be used.
[[gnu::visibility("default")]] void free_sized(void* block, size_t) { free(block); }
[[gnu::visibility("default")]] void free_aligned_sized(void* block, size_t, size_t) { free(block); }

}  // extern "C"
