// SPDX-License-Identifier: Apache-2.0
// How much clean memory was not needed, and for how long. It does not matter which part: memory
// that serves any request has no age of its own. Allocations write it, and one sweep at a time
// (allocator/idle_work.h). If two threads write at once, one note is lost, and memory stays a tick
// longer or shorter.
#pragma once

#include <algorithm>

#include "allocator/base/ledger.h"
#include "allocator/reclaim/idle_release.h"

namespace cistern::alloc {

class LowWater {
 public:
  void init() {
    lowest_.set(UINT64_MAX);
    unneeded_ = 0;
    since_ = offered_ = kNotSeen;
  }

  // An allocation left this much clean.
  void note(uint64_t clean) {
    if (clean < lowest_.get()) lowest_.set(clean);
  }

  // For a sweep: what was clean at all moments since its age; from the age `due` on it may go. What
  // did not go by the next tick is seen anew: it hides what has become clean since.
  IdleChunks see(Tick now, uint64_t clean, uint32_t due) {
    const uint64_t lowest = std::min(lowest_.get(), clean);
    lowest_.set(clean);
    if (offered_ != kNotSeen && offered_ != now) since_ = offered_ = kNotSeen;
    unneeded_ = since_ == kNotSeen ? lowest : std::min(unneeded_, lowest);
    if (unneeded_ == 0) {
      since_ = offered_ = kNotSeen;
      return {};
    }
    if (since_ == kNotSeen) since_ = now;
    const uint32_t old = age(now, since_);
    if (old >= due) offered_ = now;
    return {unneeded_, old};
  }

  // That much of it is gone.
  void released(uint64_t bytes) { unneeded_ -= std::min(unneeded_, bytes); }

 private:
  Counter lowest_;
  uint64_t unneeded_ = 0;
  Tick since_ = kNotSeen, offered_ = kNotSeen;
};

}  // namespace cistern::alloc
