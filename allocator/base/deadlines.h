// SPDX-License-Identifier: Apache-2.0
// The longest that a call of the program waits for other threads or for the driver, in nanoseconds.
// Pools and hooks share these values. A limit or pause that only one file uses is defined in that
// file.
#pragma once

#include <cstdint>

namespace cistern::alloc {

struct Deadlines {
  // For actions that end by themselves, in about the time of one call.
  static constexpr uint64_t kMoment = 10'000'000;
  // For driver calls that other threads make.
  static constexpr uint64_t kOthersCalls = 1'000'000'000;
  // For a free by the driver on a busy device, including the work before it.
  static constexpr uint64_t kRelease = 2'000'000'000;
};

}  // namespace cistern::alloc
