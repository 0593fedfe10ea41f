// SPDX-License-Identifier: Apache-2.0
// Members of the malloc family that jemalloc lacks, and members whose version in jemalloc does not
// set errno if there is no memory. Programs check errno, so ours set it. If the C library served
// the members that jemalloc lacks, our free() would get its blocks, or its free() ours. If another
// object's malloc comes first and lacks one of all these, the C library serves the call
// (host_memory.h).
#include <jemalloc/jemalloc.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shim/host/host_memory.h"
#include "shim/host/large_blocks.h"

using cistern::shim::malloc_is_ours;
using cistern::shim::next_of_family;

namespace {

using cistern::shim::backed_in_part;
using cistern::shim::grow_large_block;
using cistern::shim::kOwnMappingBytes;
using cistern::shim::usable_of;

constexpr size_t kPageBytes = 4096;

void free_of_process(void* block) {
  if (malloc_is_ours()) [[likely]]
    return free(block);
  reinterpret_cast<void (*)(void*)>(cistern::shim::first_definition("free"))(block);
}

}  // namespace

extern "C" {

void* jemalloc_realloc(void* block, size_t bytes);
size_t jemalloc_malloc_usable_size(void* block);
size_t jemalloc_sallocx(const void* block, int flags);
size_t jemalloc_xallocx(void* block, size_t bytes, size_t extra, int flags);
void* jemalloc_rallocx(void* block, size_t bytes, int flags);
void* jemalloc_memalign(size_t alignment, size_t bytes);
void* jemalloc_valloc(size_t bytes);

[[gnu::visibility("default")]] void* realloc(void* block, size_t bytes) {
  bool done = false;
  void* moved = bytes >= kOwnMappingBytes && block != nullptr
                    ? grow_large_block(block, bytes, &done)
                    : nullptr;
  if (moved == nullptr && !done) moved = jemalloc_realloc(block, bytes);
  if (moved == nullptr && bytes != 0) [[unlikely]]
    errno = ENOMEM;
  return moved;
}

[[gnu::visibility("default")]] size_t malloc_usable_size(void* block) {
  return usable_of(block, jemalloc_malloc_usable_size(block));
}

[[gnu::visibility("default")]] size_t sallocx(const void* block, int flags) {
  return usable_of(block, jemalloc_sallocx(block, flags));
}

// jemalloc does not know that a block may be mapped only in part (large_blocks.h).
[[gnu::visibility("default")]] size_t xallocx(void* block, size_t bytes, size_t extra, int flags) {
  const size_t usable = sallocx(block, flags);
  return bytes > usable && backed_in_part(block) ? usable
                                                 : jemalloc_xallocx(block, bytes, extra, flags);
}

[[gnu::visibility("default")]] void* rallocx(void* block, size_t bytes, int flags) {
  const size_t usable = sallocx(block, flags);
  if (bytes <= usable || !backed_in_part(block)) return jemalloc_rallocx(block, bytes, flags);
  void* moved = mallocx(bytes, flags);
  if (moved == nullptr) return nullptr;
  memcpy(moved, block, usable);
  dallocx(block, flags);
  return moved;
}

// As in the C library: an alignment that is no power of two is rounded up to the next one.
[[gnu::visibility("default")]] void* memalign(size_t alignment, size_t bytes) {
  if (!malloc_is_ours()) [[unlikely]] {
    return next_of_family<void*(size_t, size_t)>("memalign")(alignment, bytes);
  }
  if (alignment > SIZE_MAX / 2 + 1) {
    errno = EINVAL;
    return nullptr;
  }
  void* block = jemalloc_memalign(std::bit_ceil(alignment), bytes);
  if (block == nullptr) errno = ENOMEM;
  return block;
}

[[gnu::visibility("default")]] void* aligned_alloc(size_t alignment, size_t bytes) {
  if (!malloc_is_ours()) [[unlikely]] {
    return next_of_family<void*(size_t, size_t)>("aligned_alloc")(alignment, bytes);
  }
  return memalign(alignment, bytes);
}

[[gnu::visibility("default")]] void* valloc(size_t bytes) {
  if (!malloc_is_ours()) [[unlikely]]
    return next_of_family<void*(size_t)>("valloc")(bytes);
  void* block = jemalloc_valloc(bytes);
  if (block == nullptr) errno = ENOMEM;
  return block;
}

[[gnu::visibility("default")]] void* reallocarray(void* block, size_t count, size_t size) {
  if (!malloc_is_ours()) [[unlikely]] {
    return next_of_family<void*(void*, size_t, size_t)>("reallocarray")(block, count, size);
  }
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return realloc(block, bytes);
}

// Rounds up to whole pages, aligned to a page.
[[gnu::visibility("default")]] void* pvalloc(size_t bytes) {
  if (!malloc_is_ours()) [[unlikely]]
    return next_of_family<void*(size_t)>("pvalloc")(bytes);
  if (bytes > SIZE_MAX - kPageBytes) {
    errno = ENOMEM;
    return nullptr;
  }
  const size_t pages = (bytes + kPageBytes - 1) / kPageBytes;
  return memalign(kPageBytes, (pages == 0 ? 1 : pages) * kPageBytes);
}

// The C library has none of these: cfree() was removed in version 2.26, the others are new in C23.
// They call the process's free(), which need not be ours. The size is a hint.
[[gnu::visibility("default")]] void cfree(void* block) { free_of_process(block); }
[[gnu::visibility("default")]] void free_sized(void* block, size_t) { free_of_process(block); }
[[gnu::visibility("default")]] void free_aligned_sized(void* block, size_t, size_t) {
  free_of_process(block);
}

}  // extern "C"
