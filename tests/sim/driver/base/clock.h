// SPDX-License-Identifier: Apache-2.0
//
// The time simulated devices live in. One place, so that it can be replaced by a virtual clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace simcuda {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline void sleep_ns(uint64_t ns) {
  if (ns != 0) std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
}

}  // namespace simcuda
