// SPDX-License-Identifier: Apache-2.0
// Freed pages of the host's pool go back to the system by the background thread. It is started with
// the program's first CUDA call, whose driver has threads as well: a process without CUDA that has
// one thread keeps to one, since it may be about to make a sandbox or to fork. Nor could free()
// start it, which is called with locks of the C library held that a new thread needs, too.
//
// Where there is no thread, as in a forked child, nobody would come for what stays idle. So it goes
// back at once but for little, and for that frees do it.
#include <atomic>

#include "allocator/base/os.h"
#include "shim/host/host_memory.h"
#include "shim/host/start.h"
#include "shim/host/whose_malloc.h"
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

void start_releasing_idle_host_memory(const config::Policy& settings) {
  if (!settings.free_idle_memory.value || !malloc_is_ours()) return;
  if (!attend(/*now=*/false, &kWork)) return;
  has_thread.store(true);
  host_pool().keep_idle(UINT64_MAX);
}

void release_idle_host_memory_if_due() {
  if (has_thread.load(std::memory_order_relaxed)) return;
  const uint64_t now = alloc::os::now_ns();
  uint64_t due = due_ns.load(std::memory_order_relaxed);
  if (now < due || !due_ns.compare_exchange_strong(due, now + age_ns())) return;
  host_pool().release_idle(age_ns());
}

void reset_idle_host_memory_after_fork() {
  if (has_thread.exchange(false)) host_pool().keep_idle(kMostIdleWithoutThread);
  forget_background_thread();
}

}  // namespace cistern::shim
