// SPDX-License-Identifier: Apache-2.0
// The hooks that jemalloc 5.3 calls after each allocation, from its hook.h, which is not installed.
// jemalloc calls them without its locks; their own allocations are served without hooks. Without
// hooks they cost nothing.
#pragma once

#include <jemalloc/jemalloc.h>

#include <cstddef>
#include <cstdint>

namespace cistern::shim {

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
  void (*alloc)(void* extra, int kind, void* result, uintptr_t raw, uintptr_t arguments[3]);
  void (*dalloc)(void* extra, int kind, void* address, uintptr_t arguments[3]);
  void (*expand)(void* extra, int kind, void* address, size_t old_size, size_t new_size,
                 uintptr_t raw, uintptr_t arguments[4]);
  void* extra;
};

// A handle for remove_hooks(); nullptr if there is no room for more.
inline void* install_hooks(AllocationHooks hooks) {
  void* handle = nullptr;
  size_t size = sizeof handle;
  mallctl("experimental.hooks.install", &handle, &size, &hooks, sizeof hooks);
  return handle;
}

inline void remove_hooks(void* handle) {
  mallctl("experimental.hooks.remove", nullptr, nullptr, &handle, sizeof handle);
}

}  // namespace cistern::shim
