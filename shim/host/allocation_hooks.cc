// SPDX-License-Identifier: Apache-2.0
// The hooks that jemalloc 5.3 calls after each allocation. Its hook.h declares them, but is not
// installed. jemalloc calls them without its locks; allocations inside a hook call no hooks. If
// none is installed they cost nothing.
#include <jemalloc/jemalloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shim/host/host_memory.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

enum AllocKind {
  kMalloc,
  kPosixMemalign,
  kAlignedAlloc,
  kCalloc,
  kMemalign,
  kValloc,
  kMallocx,
  kRealloc,
  kRallocx
};
enum DallocKind { kDallocFree, kDallocDallocx, kDallocSdallocx, kDallocRealloc, kDallocRallocx };
enum ExpandKind { kExpandRealloc, kExpandRallocx, kExpandXallocx };

struct AllocationHooks {
  void (*alloc)(void* extra, int kind, void* result, uintptr_t answer, uintptr_t arguments[3]);
  void (*dalloc)(void* extra, int kind, void* address, uintptr_t arguments[3]);
  void (*expand)(void* extra, int kind, void* address, size_t old_size, size_t new_size,
                 uintptr_t answer, uintptr_t arguments[4]);
  void* extra;
};

// Returns a handle for remove_hooks(); nullptr if there is no room for another hook.
void* install_hooks(AllocationHooks hooks) {
  void* handle = nullptr;
  size_t size = sizeof handle;
  mallctl("experimental.hooks.install", &handle, &size, &hooks, sizeof hooks);
  return handle;
}

void remove_hooks(void* handle) {
  mallctl("experimental.hooks.remove", nullptr, nullptr, &handle, sizeof handle);
}

// The whole usable size is filled. If a block shrinks, the part that it gives up is filled again.
// So whatever it later grows into is filled, even inside its size class.
constinit int fill_byte = 0;

bool zeroed(uintptr_t flags) { return (flags & static_cast<uintptr_t>(MALLOCX_ZERO)) != 0; }

void fill_from(void* block, size_t first, size_t end) {
  if (first < end) memset(static_cast<char*>(block) + first, fill_byte, end - first);
}

// A block that moves is filled before its old contents are copied into it. Zeroed memory is not
// filled. calloc() promises zeros for the requested bytes only, so the rest of its block is filled.
void allocated(void*, int kind, void* block, uintptr_t answer, uintptr_t arguments[3]) {
  const bool zero =
      (kind == kMallocx && zeroed(arguments[1])) || (kind == kRallocx && zeroed(arguments[2]));
  // If posix_memalign() fails, `block` is what the caller's pointer held before the call.
  const bool failed = block == nullptr || (kind == kPosixMemalign && answer != 0);
  if (failed || zero) return;
  const size_t first = kind == kCalloc ? arguments[0] * arguments[1] : 0;
  fill_from(block, first, sallocx(block, 0));
}

// When a block moves, all of it is copied. So the part beyond its new size is filled before that.
void deallocated(void*, int kind, void* block, uintptr_t arguments[3]) {
  const bool moves = kind == kDallocRealloc || (kind == kDallocRallocx && !zeroed(arguments[2]));
  const size_t bytes = moves ? arguments[1] : 0;
  if (block != nullptr && bytes != 0) fill_from(block, bytes, sallocx(block, 0));
}

// xallocx() returns the usable size, and the program may use all of it.
void expanded(void*, int kind, void* block, size_t old_size, size_t new_size, uintptr_t,
              uintptr_t arguments[4]) {
  const bool zero = (kind == kExpandRallocx && zeroed(arguments[2])) ||
                    (kind == kExpandXallocx && zeroed(arguments[3]));
  if (zero) return;
  fill_from(block, old_size, new_size);
  if (kind != kExpandXallocx) fill_from(block, arguments[1], new_size);
}

}  // namespace

void fill_host_memory(int byte) {
  fill_byte = byte;
  install_hooks({.alloc = allocated, .dalloc = deallocated, .expand = expanded, .extra = nullptr});
}

// Bad settings are reported when a process first uses what they would have changed. With bad
// settings jemalloc works as it was built, and takes no chunk from the pool, so this happens with
// the first block.

namespace {

constinit std::atomic<void*> handle{nullptr};

void first_block(void*, int, void*, uintptr_t, uintptr_t[3]) {
  void* installed = handle.exchange(nullptr);
  if (installed == nullptr) return;
  remove_hooks(installed);
  tell_bad_settings();
}

}  // namespace

void tell_bad_settings_at_first_block() {
  handle.store(install_hooks(
      {.alloc = first_block, .dalloc = nullptr, .expand = nullptr, .extra = nullptr}));
}

}  // namespace cistern::shim
