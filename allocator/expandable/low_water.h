// SPDX-License-Identifier: Apache-2.0
// How much of what is clean was not needed for how long, where it does not matter which part of it
// was: memory that any request can have has no age of its own. Written by allocations, and by one
// sweep at a time (allocator/idle_work.h); a note that is lost to another thread's keeps memory a
// tick longer, or not as long.
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
