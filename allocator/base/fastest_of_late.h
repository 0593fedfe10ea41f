// SPDX-License-Identifier: Apache-2.0
// The least time of the last 32 to 64 calls of some function: its time when nothing delays it. Any
// thread; threads that record at the same time may lose a measurement. No locks, no errors.
#pragma once

#include <algorithm>
#include <cstdint>

#include "allocator/base/ledger.h"

namespace cistern::alloc {

class FastestOfLate {
 public:
  void note(uint64_t ns) {
    if (noted_.get() % kSpan == 0) {
      before_.set(noted_.get() == 0 ? ns : now_.get());
      now_.set(ns);
    }
    noted_.add();
    now_.set(std::min(now_.get(), ns));
  }

  // Nanoseconds; 0 before the first.
  uint64_t ns() const { return std::min(before_.get(), now_.get()); }

  void reset() {
    for (Counter* counter : {&now_, &before_, &noted_}) counter->set(0);
  }

 private:
  static constexpr uint64_t kSpan = 32;

  Counter now_, before_, noted_;  // in this span of calls, in the one before; how many
};

}  // namespace cistern::alloc
