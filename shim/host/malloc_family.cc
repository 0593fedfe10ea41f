// SPDX-License-Identifier: Apache-2.0
// Cistern's own functions of malloc's family, its C++ operators, and whether the program's calls
// reach them. jemalloc defines the rest of the family.
//
//   the malloc family  members that jemalloc lacks, and members whose version in jemalloc does not
//                      set errno if there is no memory. Programs check errno, so ours set it. If
//                      the C library served the members that jemalloc lacks, our free() would get
//                      its blocks, or its free() ours
//   new and delete     must match malloc. The program may be linked with a library that brings its
//                      own malloc and operators. Without ours, those operators would return blocks
//                      that come to our free()
//
// If another object's malloc comes first and lacks one of these functions, the C library serves the
// call (host_memory.h). Any thread.
#include <jemalloc/jemalloc.h>
#include <malloc.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shim/entry/loader.h"
#include "shim/host/host_memory.h"
#include "shim/host/jemalloc.h"

// --- Whose malloc, and whose operators, serve the program (host_memory.h).

namespace cistern::shim {
namespace {

enum class Whose : uint8_t { unknown, ours, theirs };

// Threads that call this at the same time find the same answer.
template <typename Find>
bool ours(std::atomic<Whose>& known, Find find) {
  Whose whose = known.load(std::memory_order_relaxed);
  if (whose == Whose::unknown) [[unlikely]] {
    whose = find() ? Whose::ours : Whose::theirs;
    known.store(whose, std::memory_order_relaxed);
  }
  return whose == Whose::ours;
}

constexpr const char* kOperators[] = {
#define CISTERN_NEW(symbol, parameters, arguments, alignment) #symbol,
#define CISTERN_DELETE(symbol, parameters, arguments) #symbol,
#include "shim/host/new_delete.def"
#undef CISTERN_NEW
#undef CISTERN_DELETE
};

// The operators of a C++ runtime call malloc, as ours do. A library that brings its own malloc has
// operators for that malloc.
bool gives_way(const link_map* object) {
  return definition_in(object, "__cxa_throw") != nullptr ||
         definition_in(object, "malloc") != nullptr;
}

bool no_others() {
  for (const char* name : kOperators) {
    if (!is_first_definition_ours(name)) return false;
    const link_map* next = definer_after_us(name);
    if (next != nullptr && !gives_way(next)) return false;
  }
  return true;
}

constinit std::atomic<Whose> whose_malloc{Whose::unknown}, whose_operators{Whose::unknown};

}  // namespace

bool malloc_is_ours() {
  return ours(whose_malloc, [] { return is_first_definition_ours("malloc"); });
}

bool operators_are_ours() {
  return ours(whose_operators, [] { return malloc_is_ours() && no_others(); });
}

}  // namespace cistern::shim

// --- The malloc family.

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

// realloc() and memalign() are not inlined into the others below: a tool that replaces functions by
// their names, as valgrind does, must get every request or none, or a block comes back to the wrong
// allocator.
[[gnu::visibility("default"), gnu::noinline]] void* realloc(void* block, size_t bytes) {
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

// jemalloc does not know that a block may be mapped only in part (jemalloc.h).
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
[[gnu::visibility("default"), gnu::noinline]] void* memalign(size_t alignment, size_t bytes) {
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

// --- The operators. They work like the C++ runtime's defaults. If there is no memory, they call
// the runtime's own operator: it calls our malloc again, then the program's new-handler, and
// throws, since exceptions are the runtime's.

namespace cistern::shim {
namespace {

// nullptr: no memory, or an invalid alignment.
void* allocate(size_t bytes, size_t alignment) {
  if (alignment == 0) return malloc(bytes);
  return std::has_single_bit(alignment) ? memalign(alignment, bytes) : nullptr;
}

// A caller of an operator has a C++ runtime. nullptr: the runtime is linked into the program and
// hidden there.
template <typename Function>
Function* of_runtime(const char* symbol) {
  return reinterpret_cast<Function*>(first_definition_beside("__cxa_throw", symbol));
}

}  // namespace
}  // namespace cistern::shim

// Declared under their mangled names: as C++ operators they would promise the compiler more than
// they need to.
#define CISTERN_NEW(symbol, parameters, arguments, alignment_)                                \
  [[gnu::visibility("default")]] void* operator_##symbol parameters asm(#symbol);             \
  void* operator_##symbol parameters {                                                        \
    using namespace cistern::shim; /* NOLINT(google-build-using-namespace): its other face */ \
    using Function = void* parameters;                                                        \
    if (!operators_are_ours()) [[unlikely]] {                                                 \
      if (auto* next = next_of_family<Function>(#symbol)) return next arguments;              \
    }                                                                                         \
    void* block = allocate(bytes, alignment_);                                                \
    if (block != nullptr) [[likely]]                                                          \
      return block;                                                                           \
    auto* runtimes = of_runtime<Function>(#symbol);                                           \
    return runtimes == nullptr ? nullptr : runtimes arguments;                                \
  }

#define CISTERN_DELETE(symbol, parameters, arguments)                                         \
  [[gnu::visibility("default")]] void operator_##symbol parameters asm(#symbol);              \
  void operator_##symbol parameters {                                                         \
    using namespace cistern::shim; /* NOLINT(google-build-using-namespace): its other face */ \
    if (!operators_are_ours()) [[unlikely]] {                                                 \
      if (auto* next = next_of_family<void parameters>(#symbol)) return next arguments;       \
    }                                                                                         \
    free(block);                                                                              \
  }

#include "shim/host/new_delete.def"
