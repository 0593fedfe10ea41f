// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "simcuda/clock.h"

// Null unless the test clock is preloaded.
extern "C" {
__attribute__((weak)) uint64_t cistern_clock_now_ns(void);
__attribute__((weak)) void cistern_clock_spend(uint64_t ns);
__attribute__((weak)) void cistern_clock_reach(uint64_t time_ns);
}

namespace simcuda {
namespace {

constinit bool g_virtual = false;
constinit std::atomic<int64_t> g_virtual_ns{1};

int64_t system_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void use_virtual_clock() { g_virtual = true; }

int64_t now_ns() {
  if (g_virtual) return g_virtual_ns.load();
  return cistern_clock_now_ns != nullptr ? static_cast<int64_t>(cistern_clock_now_ns())
                                         : system_ns();
}

void advance_to_ns(int64_t time_ns) {
  if (!g_virtual && cistern_clock_reach != nullptr) {
    return cistern_clock_reach(static_cast<uint64_t>(time_ns));
  }
  if (!g_virtual) {
    const int64_t now = system_ns();
    if (time_ns > now) std::this_thread::sleep_for(std::chrono::nanoseconds(time_ns - now));
    return;
  }
  int64_t seen = g_virtual_ns.load();
  while (seen < time_ns && !g_virtual_ns.compare_exchange_weak(seen, time_ns)) {
  }
}

void advance_ns(uint64_t ns) {
  if (ns == 0) return;
  if (!g_virtual && cistern_clock_spend != nullptr) return cistern_clock_spend(ns);
  advance_to_ns(now_ns() + static_cast<int64_t>(ns));
}

}  // namespace simcuda
