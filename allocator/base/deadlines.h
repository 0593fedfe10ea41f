// SPDX-License-Identifier: Apache-2.0
// How long a call of the program waits at most for what others do, in nanoseconds. A header of its
// own, because pools and hooks name these values, and none of them owns another's. Waits that only
// one place knows, and pauses within a wait, have their values there.
#pragma once

#include <cstdint>

namespace cistern::alloc {

struct Deadlines {
  // What ends by itself, in about the time of a call.
  static constexpr uint64_t kMoment = 10'000'000;
  // Calls of the driver that other threads make.
  static constexpr uint64_t kOthersCalls = 1'000'000'000;
  // A free of the driver's own on a busy device, and the work before it.
  static constexpr uint64_t kRelease = 2'000'000'000;
};

}  // namespace cistern::alloc
