// SPDX-License-Identifier: Apache-2.0
// The fill of host memory, by hooks that jemalloc 5.3 calls after each allocation; without a fill
// there are none, and they cost nothing. The whole usable size is filled, so that a block that
// grows in its place grows into filled bytes.
#include <jemalloc/jemalloc.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shim/host/allocation_hooks.h"
#include "shim/host/host_memory.h"

namespace cistern::shim {
namespace {

constinit int fill_byte = 0;

bool zeroed(uintptr_t flags) { return (flags & static_cast<uintptr_t>(MALLOCX_ZERO)) != 0; }

// A block that moves is filled before its old contents are copied into it.
void allocated(void*, int kind, void* block, uintptr_t, uintptr_t arguments[3]) {
  const bool zero = kind == kCalloc || (kind == kMallocx && zeroed(arguments[1])) ||
                    (kind == kRallocx && zeroed(arguments[2]));
  if (block != nullptr && !zero) memset(block, fill_byte, sallocx(block, 0));
}

void expanded(void*, int kind, void* block, size_t old_size, size_t new_size, uintptr_t,
              uintptr_t arguments[4]) {
  const bool zero = (kind == kExpandRallocx && zeroed(arguments[2])) ||
                    (kind == kExpandXallocx && zeroed(arguments[3]));
  if (!zero && new_size > old_size) {
    memset(static_cast<char*>(block) + old_size, fill_byte, new_size - old_size);
  }
}

}  // namespace

void fill_host_memory(int byte) {
  fill_byte = byte;
  install_hooks({.alloc = allocated, .dalloc = nullptr, .expand = expanded, .extra = nullptr});
}

}  // namespace cistern::shim
