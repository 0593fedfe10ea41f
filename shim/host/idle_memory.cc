// SPDX-License-Identifier: Apache-2.0
// Freed pages of the host's pool go back to the system by the background thread, which is started
// at load: free() is called with locks of the C library held that a new thread needs, too. Where
// there is no thread, as in a forked child, frees do it.
#include <atomic>

#include "allocator/base/os.h"
#include "shim/host/host_memory.h"
#include "shim/process/background.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

constinit std::atomic<bool> has_thread{false};
constinit std::atomic<uint64_t> due_ns{0};

uint64_t age_ns() { return policy().idle_ms.value * 1'000'000; }

constexpr BackgroundWork kWork = {
    .round = [] { return host_pool().release_idle(age_ns()); },
    .pause_ns = [] { return age_ns() / 2; },
    .calls_driver = false,
    .keeps_thread = true,
};

}  // namespace

void start_releasing_idle_host_memory() { has_thread.store(attend(/*now=*/false, &kWork)); }

void release_idle_host_memory_if_due() {
  if (has_thread.load(std::memory_order_relaxed)) return;
  const uint64_t now = alloc::os::now_ns();
  uint64_t due = due_ns.load(std::memory_order_relaxed);
  if (now < due || !due_ns.compare_exchange_strong(due, now + age_ns())) return;
  host_pool().release_idle(age_ns());
}

void reset_idle_host_memory_after_fork() {
  has_thread.store(false);
  forget_background_thread();
}

}  // namespace cistern::shim
