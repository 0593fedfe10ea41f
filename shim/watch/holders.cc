// SPDX-License-Identifier: Apache-2.0
#include "shim/watch/holders.h"

#include "allocator/base/mutex.h"

namespace cistern::shim {
namespace {

constinit alloc::Mutex mutex{};
constinit alloc::Tallies tallies{};

}  // namespace

void holders_allocated(const alloc::Event& event) {
  const alloc::LockGuard guard(mutex);
  tallies.allocated(event);
}

bool holders_freed(const alloc::Event& event, alloc::Event* block) {
  const alloc::LockGuard guard(mutex);
  return tallies.freed(event, block);
}

void holders_not_freed(const alloc::Event& block) {
  const alloc::LockGuard guard(mutex);
  tallies.not_freed(block);
}

void holders_context_ended(const alloc::Event& event) {
  const alloc::LockGuard guard(mutex);
  tallies.context_ended(event);
}

void reset_holders_after_fork() { mutex.reset(); }

}  // namespace cistern::shim
