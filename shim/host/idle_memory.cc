// SPDX-License-Identifier: Apache-2.0
// Freed pages of the host's pool go back to the system by the background thread.
#include "shim/host/host_memory.h"
#include "shim/process/background.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

uint64_t age_ns() { return policy().idle_ms.value * 1'000'000; }

constexpr BackgroundWork kWork = {
    .round = [] { return host_pool().release_idle(age_ns()) != 0; },
    .pause_ns = [] { return age_ns() / 2; },
};

}  // namespace

void attend_idle_host_memory() { attend(/*now=*/false, &kWork); }

void reset_idle_host_memory_after_fork() { reset_background_after_fork(); }

}  // namespace cistern::shim
