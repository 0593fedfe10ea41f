// SPDX-License-Identifier: Apache-2.0
// Bad settings are told where a process comes to use what they are about. Under them malloc is
// jemalloc's as it was built, and no chunk is ever taken from the pool: the moment of the first one
// is that of the first block.
#include <atomic>

#include "shim/host/allocation_hooks.h"
#include "shim/host/start.h"
#include "shim/process/life.h"

namespace cistern::shim {
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
